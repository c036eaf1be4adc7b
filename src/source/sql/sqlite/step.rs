//! Rows read from SQLite as it steps: on this thread, without the driver in between.
//!
//! The driver passes each row on from a thread of its own, which takes longer than finding it.

use rusqlite::Connection;
use sqlx::sqlite::LockedSqliteHandle;

/// How often SQLite asks whether to continue, in instructions of its virtual machine: thousands of times a second.
const ASKED_EVERY: i32 = 10_000;

/// Runs `read` on the driver's own connection, with all its options set. `unwanted` ends a running statement, however
/// long it takes to its first row; SQLite calls it from within.
pub(super) fn on_driver_connection<R>(
    handle: &mut LockedSqliteHandle<'_>,
    mut unwanted: impl FnMut() -> bool + Send + 'static,
    read: impl FnOnce(&Connection) -> rusqlite::Result<R>,
) -> rusqlite::Result<R> {
    handle.set_progress_handler(ASKED_EVERY, move || !unwanted());
    let result = borrowed(handle, read);
    handle.remove_progress_handler();
    result
}

/// The one place where SQLite is called past the driver.
#[allow(unsafe_code)] // Two safe interfaces of one C library: only a raw handle leads from one to the other.
fn borrowed<R>(
    handle: &mut LockedSqliteHandle<'_>,
    read: impl FnOnce(&Connection) -> rusqlite::Result<R>,
) -> rusqlite::Result<R> {
    // SAFETY: the handle is open. While its lock is held, which is borrowed for all of this call, the driver's thread
    // calls nothing on it or on its statements; nothing else serialises them. A connection made from a handle does not
    // close it, and is gone with its statements before the lock is, because `read` can keep nothing that it borrows.
    // Both crates link one libsqlite3-sys (cargo allows no two crates that link it), so the pointer is of one type.
    let connection = unsafe { Connection::from_handle(handle.as_raw_handle().as_ptr()) }?;
    read(&connection)
}
