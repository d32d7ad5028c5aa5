//! A server on a port of the loopback interface, with a thread and a runtime of its own.

use axum::Router;
use axum::serve::ListenerExt;
use std::future::IntoFuture;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

/// A server that is running; dropping it ends it, and with it every connection, those that hang included.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it; port 0 is any that is free. It accepts connections when this returns.
    pub(crate) fn start(port: u16, router: Router) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let run = move || run(port, router, &started, stopped);
        let thread = thread::Builder::new().name("lemon-fakes".to_owned()).spawn(run)?;
        let address = start.recv().map_err(|_| io::Error::other("the fake's thread died"))??;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection and the port.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have ended by itself; then nothing listens.
            let _ = stop.send(());
        }
        self.wait();
    }

    /// Until it ends.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the server was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The server's thread. One thread is enough for thousands of requests a second, as nothing here computes.
fn run(port: u16, router: Router, started: &mpsc::Sender<io::Result<SocketAddr>>, stopped: oneshot::Receiver<()>) {
    let serve = async {
        let (listener, address) = listen(port)?;
        // The one who started this waits for it.
        let _ = started.send(Ok(address));
        // Without `set_nodelay` the kernel holds small pieces of a stream back.
        let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
        tokio::select! {
            result = axum::serve(listener, router).into_future() => result,
            _ = stopped => Ok(()),
        }
    };
    // The runtime ends with this statement, and every connection with it.
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|rt| rt.block_on(serve));
    if let Err(error) = result {
        let _ = started.send(Err(error));
    }
}

fn listen(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    // So that a port can be taken again while old connections to it are still closing.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    // A whole team may connect at once; the usual 128 would make some of them wait a second.
    let listener = socket.listen(4096)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
