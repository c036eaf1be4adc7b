//! Opens files that can't make a reader wait for a writer.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file, also through symbolic links: Kubernetes mounts secrets so. A pipe or a device would block the
/// reader until something is written to it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: opening a pipe or a device may have effects of its own.
    check(path.metadata()?.file_type())?;
    // Another file may be there by now, and must not block either.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

fn check(is: FileType) -> io::Result<()> {
    let what = match is {
        _ if is.is_file() => return Ok(()),
        _ if is.is_dir() => "a directory",
        _ if is.is_fifo() => "a pipe",
        _ if is.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is {what}, not a regular file")))
}
