//! axum as its users write it, without a route: hyper, a router, and nothing of ours.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::http::StatusCode;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::connection::Place;
use crate::process::{Placement, Server, free_address, listening};

pub(super) fn start(placement: Placement, directory: &Path) -> (Place, Server, Vec<Server>) {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program has no path: {error}"));
    let address = free_address();
    let threads = if placement == Placement::Pinned { "1" } else { "2" };
    let server = Server::start(placement, &program, &["serve-axum", &address.to_string(), threads], directory);
    listening(address);
    (Place::Tcp(address), server, Vec::new())
}

/// Serves for ever.
pub(crate) fn serve(address: SocketAddr, threads: usize) -> io::Result<()> {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_all().build()?.block_on(async {
        let router = Router::new().fallback(|| async { StatusCode::NOT_FOUND });
        let listener = TcpListener::bind(address).await?.tap_io(|stream| _ = stream.set_nodelay(true));
        axum::serve(listener, router).await
    })
}
