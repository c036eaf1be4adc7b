//! Listening sockets. Binding is separate from serving, so that tests bind port 0 and nothing is served before every
//! listener is bound.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::stream::Stream;

/// Connections that the kernel queues while all slots are taken.
const BACKLOG: i32 = 1024;

/// A socket that listens but is not served yet. Clients wait in the accept queue.
#[derive(Debug)]
pub struct BoundListener {
    socket: ListenSocket,
    addr: LocalAddr,
}

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAddr {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket's path.
    Unix(PathBuf),
}

impl LocalAddr {
    /// The TCP address, if it is one.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(addr) => Some(*addr),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for LocalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {addr}: {source}")]
pub struct BindError {
    /// The address as it was configured.
    pub addr: String,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl BoundListener {
    /// Listens on `host:port` or `unix:/path`. `unix_mode` sets the permission bits of a Unix socket; TCP ignores it.
    ///
    /// Replaces a socket file that nobody listens on, as a killed process leaves it.
    ///
    /// # Errors
    /// [`BindError`]: the address is taken, malformed or not local.
    pub async fn bind(addr: &str, unix_mode: u32) -> Result<Self, BindError> {
        let bound = match addr.strip_prefix("unix:") {
            Some(path) => bind_unix(Path::new(path), unix_mode).await,
            None => bind_tcp(addr).await,
        };
        bound.map_err(|source| BindError { addr: addr.to_owned(), source })
    }

    /// The bound address, with the port that the system chose for port 0.
    #[must_use]
    pub const fn local_addr(&self) -> &LocalAddr {
        &self.addr
    }

    /// Accepts the next connection. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            ListenSocket::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::tcp(stream)),
            ListenSocket::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    /// Accepts a connection that is already complete; `WouldBlock` if there is none.
    ///
    /// Asks the kernel directly: the runtime's own accept waits until its event loop has seen the connection.
    pub(super) fn accept_waiting(&self) -> io::Result<Stream> {
        let nonblocking = |(socket, _): (Socket, SockAddr)| socket.set_nonblocking(true).map(|()| socket);
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let socket = SockRef::from(listener).accept().and_then(nonblocking)?;
                TcpStream::from_std(socket.into()).map(Stream::tcp)
            }
            ListenSocket::Unix(listener, _) => {
                let socket = SockRef::from(listener).accept().and_then(nonblocking)?;
                UnixStream::from_std(socket.into()).map(Stream::Unix)
            }
        }
    }
}

#[derive(Debug)]
enum ListenSocket {
    Tcp(TcpListener),
    /// Removes the file when the listener is dropped.
    Unix(UnixListener, #[allow(dead_code, reason = "held to be dropped")] SocketFile),
}

async fn bind_tcp(addr: &str) -> io::Result<BoundListener> {
    let listener = TcpListener::bind(addr).await?;
    let addr = LocalAddr::Tcp(listener.local_addr()?);
    Ok(BoundListener { socket: ListenSocket::Tcp(listener), addr })
}

async fn bind_unix(path: &Path, mode: u32) -> io::Result<BoundListener> {
    remove_stale(path).await?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::of(path)?;
    // Before `listen`: until then every connect is refused, so the wider mode of the umask is never usable.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(socket.into())?;
    Ok(BoundListener { socket: ListenSocket::Unix(listener, file), addr: LocalAddr::Unix(path.to_owned()) })
}

/// Removes a socket file that refuses connections. Any other file, or a live socket, stays and is an error.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket is in the way"));
    }
    match UnixStream::connect(path).await {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full accept queue also means that a process listens.
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket")),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket"))
        }
        Err(e) => Err(e),
    }
}

/// Removes a socket file when dropped, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.dev() == self.device && m.ino() == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove socket file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_zero_becomes_a_real_port() {
        let bound = BoundListener::bind("127.0.0.1:0", 0).await.unwrap();
        assert_ne!(bound.local_addr().tcp().unwrap().port(), 0);
    }

    #[tokio::test]
    async fn a_taken_port_names_the_address() {
        let first = BoundListener::bind("127.0.0.1:0", 0).await.unwrap();
        let addr = first.local_addr().to_string();
        let error = BoundListener::bind(&addr, 0).await.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr), "{error}");
        assert!(BoundListener::bind("no port here", 0).await.is_err());
    }

    #[tokio::test]
    async fn unix_socket_has_its_mode_and_goes_with_the_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.sock");
        let bound = BoundListener::bind(&format!("unix:{}", path.display()), 0o620).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
        assert_eq!(bound.local_addr(), &LocalAddr::Unix(path.clone()));
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.sock");
        let addr = format!("unix:{}", path.display());
        // The standard library's listener leaves its file behind, as a killed process does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = BoundListener::bind(&addr, 0o660).await.unwrap();
        let error = BoundListener::bind(&addr, 0o660).await.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).await.unwrap();
        drop(live);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(BoundListener::bind(&format!("unix:{}", path.display()), 0o660).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[tokio::test]
    async fn a_successors_socket_file_survives_our_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.sock");
        let ours = BoundListener::bind(&format!("unix:{}", path.display()), 0o660).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        // A placeholder first, because the kernel may reuse a freed inode.
        let _placeholder = std::fs::File::create(dir.path().join("placeholder")).unwrap();
        let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
    }
}
