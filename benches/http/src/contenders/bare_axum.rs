//! axum as it is usually used, without a route: hyper, a router, and none of our code.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use axum::Router;
use axum::http::StatusCode;
use axum::serve::ListenerExt;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;

use crate::connection::Place;
use crate::process::{Placement, Server, free_address, listening};

/// Argument for the second form of [`start`].
const CORES: usize = 2;

/// On one runtime with one thread per processor; or on one single-threaded, pinned runtime per processor, each with its
/// own listener on the same port.
pub(super) fn start(placement: Placement, by_cores: bool, directory: &Path) -> (Place, Server, Vec<Server>) {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program has no path: {error}"));
    let address = free_address();
    let threads = match placement {
        _ if by_cores => "by-cores",
        Placement::Pinned => "1",
        Placement::Sharing => "2",
    };
    let server = Server::start(placement, &program, &["serve-axum", &address.to_string(), threads], directory);
    listening(address);
    (Place::Tcp(address), server, Vec::new())
}

/// Serves for ever.
pub(crate) fn serve(address: SocketAddr, threads: &str) -> io::Result<()> {
    if threads == "by-cores" {
        return serve_by_cores(address);
    }
    let threads = threads.parse().map_err(io::Error::other)?;
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder
        .worker_threads(threads)
        .enable_all()
        .build()?
        .block_on(async { accept(TcpListener::bind(address).await?).await })
}

fn serve_by_cores(address: SocketAddr) -> io::Result<()> {
    let serve = |core: usize| {
        let mut processors = CpuSet::new();
        processors.set(core);
        sched_setaffinity(None, &processors)?;
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseport(true)?;
            socket.bind(address)?;
            accept(socket.listen(1024)?).await
        })
    };
    thread::scope(|scope| {
        let cores: Vec<_> = (0..CORES).map(|core| scope.spawn(move || serve(core))).collect();
        cores.into_iter().try_for_each(|core| core.join().map_err(|_| io::Error::other("a core panicked"))?)
    })
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let router = Router::new().fallback(|| async { StatusCode::NOT_FOUND });
    axum::serve(listener.tap_io(|stream| _ = stream.set_nodelay(true)), router).await
}
