//! Rows taken from SQLite where it steps: on this thread, with nothing between the library and who reads.
//!
//! The driver hands each row over from a thread of its own, which takes longer than finding it.

use rusqlite::Connection;
use sqlx::sqlite::LockedSqliteHandle;

/// How often SQLite asks whether to go on, in instructions of its virtual machine: thousands of times a second.
const ASKED_EVERY: i32 = 10_000;

/// Runs `read` on the driver's own connection, with all that its options have set. `unwanted` ends a statement that runs, however long it takes to
/// its first row; SQLite calls it from within.
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
    // SAFETY: the handle is open, and while its lock is held, which is borrowed for all of this call, the driver's thread calls nothing on it or on
    // its statements: nothing else serialises them. A connection that is made of a handle does not close it, and is gone with its statements before the
    // lock is, for `read` can keep nothing of what it borrows. Both crates link one libsqlite3-sys (cargo allows no two that link it), so the pointer is
    // of one type.
    let connection = unsafe { Connection::from_handle(handle.as_raw_handle().as_ptr()) }?;
    read(&connection)
}
