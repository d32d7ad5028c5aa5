//! A real vLLM server for tests, on the processor, where a Python environment with it is named.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable that names the environment: a folder with `bin/vllm`, a build for processors.
pub const VLLM_VARIABLE: &str = "LEMON_VLLM";
/// How long the server may take to answer: it compiles kernels when it starts.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(20);

/// A server of its own for one test. It ends with this value.
pub struct VllmServer {
    process: Child,
    port: u16,
}

impl VllmServer {
    /// Starts one with the model in `model` in a folder, which is also its name, and with these log-probabilities
    /// (`--logprobs-mode`), for so many tokens of a prompt and its text. `None`: no environment is named, and the test says that it is skipped.
    ///
    /// # Panics
    /// It is installed and does not start.
    pub fn start(folder: &Path, logprobs: &str, positions: usize) -> Option<VllmServer> {
        let Some(environment) = std::env::var_os(VLLM_VARIABLE) else {
            eprintln!("skipped: {VLLM_VARIABLE} names no Python environment with vLLM");
            return None;
        };
        match launch(Path::new(&environment), folder, (logprobs, positions)) {
            Ok(server) => Some(server),
            Err(error) => panic!("vLLM cannot be started: {error}"),
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for VllmServer {
    fn drop(&mut self) {
        let id = self.process.id();
        // It is gone already, then.
        let _ = Command::new("kill").args(["-TERM", &id.to_string()]).status();
        let began = Instant::now();
        while began.elapsed() < FAREWELL && matches!(self.process.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(50));
        }
        // Its engine and whatever else is left: they are a group of their own.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{id}")]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

fn launch(environment: &Path, folder: &Path, (logprobs, positions): (&str, usize)) -> io::Result<VllmServer> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let bin = environment.join("bin");
    let path = std::env::join_paths(
        std::iter::once(bin.clone()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .map_err(io::Error::other)?;
    let log = fs::File::create(folder.join("vllm.log"))?;
    let process = Command::new(bin.join("vllm"))
        .args(["serve", "model", "--served-model-name", "model", "--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--dtype", "float32", "--max-model-len", &positions.to_string(), "--enforce-eager"])
        .args(["--enable-lora", "--max-lora-rank", "8", "--max-loras", "2"])
        .args(["--structured-outputs-config.backend", "guidance", "--logprobs-mode", logprobs])
        .current_dir(folder)
        .env("PATH", path)
        .env("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
        .env("VLLM_CPU_KVCACHE_SPACE", "1")
        .env("VLLM_NO_USAGE_STATS", "1")
        .env("HF_HUB_OFFLINE", "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let mut server = VllmServer { process, port };
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = server.process.try_wait()? {
            let said = fs::read_to_string(folder.join("vllm.log"))?;
            return Err(io::Error::other(format!("it ended with {status}: {said}")));
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("it does not answer"));
        }
        sleep(Duration::from_millis(200));
    }
    Ok(server)
}
