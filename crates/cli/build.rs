//! Makes the program smaller: the linker keeps one copy of functions whose machine code is the same, and packs the list of
//! addresses that are set when the program is loaded.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // There `rust-lld` links unless another linker was chosen, which may not know the option.
    let is_known = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("RUSTC_LINKER").is_none()
        && is("CARGO_ENCODED_RUSTFLAGS", "");
    if !is_known || !is("PROFILE", "release") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    let is_for_here = env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    if is_for_here && reads_packed_addresses() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library of this machine, which loads the program, reads packed addresses, as version 2.36 and later do. A
/// library that does not say which version it has counts as older.
fn reads_packed_addresses() -> bool {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = said.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    let numbers = version.and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    numbers.is_some_and(|version| version >= (2, 36))
}
