//! A real server of the Tinker API for tests: SkyRL on the processor, where a Python environment with it is named.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable that names the environment: a folder with `bin/python` and `bin/uv`, into which `skyrl[tinker,jax]` is installed.
pub const SKYRL_VARIABLE: &str = "LEMON_SKYRL";
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(15);
/// Texts that are sampled in one batch. One size is compiled once.
const BATCH: usize = 16;

/// The server starts its engine with `uv`, which wants a project with these names.
const PROJECT: &str = "[project]\nname = \"engine\"\nversion = \"0\"\nrequires-python = \">=3.11\"\n\
                       [project.optional-dependencies]\ntinker = []\njax = []\n";

/// A server of its own for one test. It ends with this value.
pub struct SkyrlServer {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl SkyrlServer {
    /// Starts one in a folder, with the model in `model` there, which is also its name; what it saves goes there too. `None`: no
    /// environment is named, and the test says that it is skipped.
    ///
    /// # Panics
    /// It is installed and does not start.
    pub fn start(folder: &Path) -> Option<SkyrlServer> {
        let Some(environment) = std::env::var_os(SKYRL_VARIABLE) else {
            eprintln!("skipped: {SKYRL_VARIABLE} names no Python environment with skyrl[tinker,jax] and uv");
            return None;
        };
        match launch(Path::new(&environment), folder) {
            Ok(server) => Some(server),
            Err(error) => panic!("SkyRL cannot be started: {error}"),
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where it saves weights.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }
}

impl Drop for SkyrlServer {
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

fn launch(environment: &Path, folder: &Path) -> io::Result<SkyrlServer> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("pyproject.toml"), PROJECT)?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let bin = environment.join("bin");
    let path = std::env::join_paths(
        std::iter::once(bin.clone()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .map_err(io::Error::other)?;
    let log = fs::File::create(folder.join("server.log"))?;
    let process = Command::new(bin.join("uv"))
        .args(["run", "--active", "--no-sync", "--offline", "-m", "skyrl.tinker.api", "--backend", "jax"])
        .args(["--base-model", "model"])
        .arg("--backend-config")
        .arg(format!("{{\"max_lora_adapters\":4,\"max_lora_rank\":8,\"sample_max_num_sequences\":{BATCH}}}"))
        .arg("--checkpoints-base")
        .arg(folder.join("checkpoints"))
        .arg("--database-url")
        .arg(format!("sqlite:///{}", folder.join("tinker.db").display()))
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .current_dir(folder)
        .env("PATH", path)
        .env("VIRTUAL_ENV", environment)
        .env("JAX_PLATFORMS", "cpu")
        .env("HF_HUB_OFFLINE", "1")
        // What is compiled once need not be compiled by the next test.
        .env("JAX_COMPILATION_CACHE_DIR", std::env::temp_dir().join("lemon-skyrl-cache"))
        .env("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let mut server = SkyrlServer { process, port, folder: folder.to_owned() };
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = server.process.try_wait()? {
            let said = fs::read_to_string(folder.join("server.log"))?;
            return Err(io::Error::other(format!("it ended with {status}: {said}")));
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("it does not answer"));
        }
        sleep(Duration::from_millis(100));
    }
    Ok(server)
}
