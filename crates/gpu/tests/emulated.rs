//! The kernels, and everything around them, on a CPU: a program with the functions of the CUDA driver, NVRTC and cuBLASLt is built
//! with the C++ compiler at hand, and the self-check runs on it. Rounding is that of a GPU; speed and timing are not.

use std::path::Path;
use std::process::Command;

/// Where the library is looked for by the process that checks.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

#[test]
fn training_on_the_emulator_is_right() {
    let emulator = Path::new(env!("CARGO_MANIFEST_DIR")).join("emulator");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        println!("skipped: the emulator is for Linux on x86-64");
        return;
    }
    if Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: expected the compiler c++, found none");
        return;
    }
    let built = Command::new("sh").arg(emulator.join("build.sh")).arg(&folder).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checks_on_the_emulator", "--ignored", "--nocapture"])
        .env(LIBRARIES, &folder)
        .env("LEMON_EMULATOR_CACHE", &folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
#[ignore = "run by `training_on_the_emulator_is_right`, which puts the emulator where the driver is looked for"]
fn checks_on_the_emulator() {
    let device = lemon_gpu::Device::open().unwrap();
    assert_eq!(device.info().name, "emulated");
    let rows = lemon_gpu::check_training(&device).unwrap();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        assert!(row.passes(), "{}: {} (limit {})", row.name, row.error, row.limit);
    }
}
