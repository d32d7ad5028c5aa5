//! A NATS server with JetStream for tests: the real one, where it is installed, and a proxy in front of it that drops
//! connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of its own for one test. It ends with this value.
pub struct NatsServer {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl NatsServer {
    /// Starts one. `None`: `nats-server` is not installed here, and the test says that it is skipped.
    ///
    /// # Panics
    /// It is installed and does not start.
    pub fn start() -> Option<NatsServer> {
        NatsServer::start_with("")
    }

    /// The same with more lines in its configuration.
    ///
    /// # Panics
    /// It is installed and does not start, or the configuration cannot be written.
    pub fn start_with(configuration: &str) -> Option<NatsServer> {
        let installed = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
        if !installed.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nats-server is not installed");
            return None;
        }
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("lemon-nats-{}-{port}", std::process::id()));
        let written =
            std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join("nats.conf"), configuration));
        if let Err(error) = written {
            panic!("{}: {error}", folder.display());
        }
        let process = launch(port, &folder);
        Some(NatsServer { process, port, folder })
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it without warning and starts it again, with what it had on disk.
    pub fn restart(&mut self) {
        self.end();
        self.process = launch(self.port, &self.folder);
    }

    /// The same without what it had: streams, buckets and objects are lost.
    ///
    /// # Panics
    /// What it had cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.end();
        let kept = self.folder.join("jetstream");
        if let Err(error) = std::fs::remove_dir_all(&kept) {
            panic!("{}: {error}", kept.display());
        }
        self.process = launch(self.port, &self.folder);
    }

    fn end(&mut self) {
        // It is gone already, then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.end();
        // What is left lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn launch(port: u16, folder: &PathBuf) -> Child {
    let process = Command::new("nats-server")
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
        .arg(folder)
        .arg("-c")
        .arg(folder.join("nats.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(process) = process else { panic!("nats-server cannot be started") };
    let began = Instant::now();
    while !answers(port) {
        assert!(began.elapsed() < PATIENCE, "nats-server does not answer");
        sleep(Duration::from_millis(10));
    }
    process
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut greeting = [0; 5];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && greeting == *b"INFO "
}

fn free_port() -> u16 {
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    match address {
        Ok(address) => address.port(),
        Err(error) => panic!("no port is free: {error}"),
    }
}

/// A proxy in front of a server that can drop all its connections.
pub struct DroppingProxy {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
    end: Arc<AtomicBool>,
}

impl DroppingProxy {
    /// A proxy in front of this server.
    ///
    /// # Panics
    /// No port is free.
    pub fn start(server: &NatsServer) -> DroppingProxy {
        let target = server.port;
        let (open, end) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let port = free_port();
        let listener = match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => listener,
            Err(error) => panic!("the proxy cannot listen: {error}"),
        };
        let (streams, over) = (open.clone(), end.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), Ok(server)) = (stream, TcpStream::connect(("127.0.0.1", target))) else { continue };
                let pairs = client.try_clone().and_then(|from| Ok((from, server.try_clone()?)));
                let Ok((client_copy, server_copy)) = pairs else { continue };
                if let (Ok(one), Ok(other)) = (client.try_clone(), server.try_clone()) {
                    streams.lock().unwrap_or_else(PoisonError::into_inner).extend([one, other]);
                }
                std::thread::spawn(move || pass(client, server));
                std::thread::spawn(move || pass(server_copy, client_copy));
            }
        });
        DroppingProxy { port, open, end }
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Drops all connections.
    pub fn drop_all(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It is closed already, then.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for DroppingProxy {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        // Wakes the thread that listens.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.drop_all();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut piece) {
        let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
        if to.write_all(piece).is_err() {
            break;
        }
    }
    // Either side may have closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
