//! The lock of `server.data_dir`.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, bail};

/// Creates the folder and locks it against other processes.
pub(super) fn lock_data_dir(dir: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(dir).with_context(|| format!("server.data_dir: {} can't be made", dir.display()))?;
    let lock = File::create(dir.join("lock"))
        .with_context(|| format!("server.data_dir: {} can't be written to", dir.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("server.data_dir: {} is in use by another bloomguard; give each its own", dir.display())
        }
        Err(fs::TryLockError::Error(e)) => {
            Err(e).with_context(|| format!("server.data_dir: {} can't be locked", dir.display()))
        }
    }
}
