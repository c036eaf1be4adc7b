//! Long computations that only rebuilds need, on threads of their own with a lower priority than lookups.
//!
//! No request waits while keys are read or a filter is filled. A scheduler that does not know this gives these threads
//! the processor for milliseconds at a time, a hundred times as long as a lookup takes. So they are made nice.
//!
//! A thread can become nicer, but needs a privilege to go back. So these are not threads of the runtime's pool, which
//! would stay nice for the next task. One thread of the pool waits for each of them, so runtime shutdown waits for
//! these threads as for all blocking tasks, and a paused test clock stands still meanwhile. Threads inherit niceness,
//! so code here starts no threads and uses nothing of the pool.
//!
//! **Hold nothing here that lookups or announces wait for**, beyond the few instructions of a queue or of the
//! allocator: a thread that holds a lock and loses the processor makes them wait for as long as the scheduler decides.
//! That is longer the nicer the thread is.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::task::JoinHandle;
use tokio::task_local;

/// The nicest value. Beside a busy thread such a thread gets a seventieth of the processor, and otherwise all that is
/// free. Under `SCHED_IDLE` it would get a three-hundredth, and under a flood no filter would be done for minutes, see
/// docs/benchmarks.md. Test builds run beside a hundred other busy processes, unlike a server, and are less nice.
const NICEST: i32 = if cfg!(debug_assertions) { 5 } else { 19 };
/// The requested time slice, the longest possible. The thread gets no longer slices than others. But on kernels with
/// such slices, Linux since 6.12, a thread that wakes up may preempt only threads with longer slices than its own, and
/// otherwise waits for the end of the slice.
const TIME_SLICE: Duration = Duration::from_millis(100);

task_local! {
    static NORMAL_PRIORITY: ();
}

/// Runs what starts during `work` at normal priority. While no filter is trusted, lookups wait for the backend, which
/// is under the flood.
pub async fn at_normal_priority<F: Future>(work: F) -> F::Output {
    NORMAL_PRIORITY.scope((), work).await
}

/// Starts `work` on a thread of that name, whether or not a caller waits for its end. Long work must check itself
/// whether it is still wanted.
pub fn start<T: Send + 'static>(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let is_urgent = NORMAL_PRIORITY.try_with(|()| ()).is_ok();
    tokio::task::spawn_blocking(move || run_on_thread(name, !is_urgent, work))
}

/// Waits, on a thread that may block, for `work` on a thread of that name.
///
/// # Panics
/// If `work` panics, and if the system has no thread left, as the runtime's pool does then.
pub fn run<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    run_on_thread(name, true, work)
}

fn run_on_thread<T: Send>(name: &str, nice: bool, work: impl FnOnce() -> T + Send) -> T {
    let nicely = || {
        if nice {
            be_nice_here();
        }
        work()
    };
    let ended = thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, nicely);
        thread.unwrap_or_else(|error| panic!("no thread {name}: {error}")).join()
    });
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

fn be_nice_here() {
    // On Linux a process without a number is the calling thread.
    let nice = getpriority_process(None).and_then(|already| {
        let nice = already.max(NICEST);
        // Some sandboxes know only the older call.
        be_nice(nice).or_else(|_| setpriority_process(None, nice))
    });
    if let Err(error) = nice {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        // Relaxed: it only limits how often this is logged.
        if !LOGGED.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "can't lower the priority of rebuild threads");
        }
    }
}

#[allow(unsafe_code)] // No crate of ours has this call.
fn be_nice(nice: i32) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        // Under this policy it is the length of a slice; kernels before 6.12 ignore it.
        sched_runtime: TIME_SLICE.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: thread 0 is the calling thread. The kernel reads `size` bytes of the attributes, which live until it
    // returns, and keeps no pointer.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns free memory to the system. glibc keeps free memory that lies below used memory: after a flood of small
/// entries, half of what they used. Takes milliseconds, so not for threads that serve requests.
#[allow(unsafe_code)] // No crate of ours has this call.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time from any thread, and touches no allocated memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        getpriority_process(None).unwrap()
    }

    #[tokio::test]
    async fn work_is_done_by_a_thread_of_its_own_that_is_nicer_and_nobody_else_is() {
        let before = nice();
        let (name, nicer) =
            start("looks-around", || (thread::current().name().map(str::to_owned), nice())).await.unwrap();
        assert_eq!(name.as_deref(), Some("looks-around"));
        assert_eq!(nicer, before.max(NICEST));
        assert_eq!(nice(), before);
        // A thread of the pool, which gets the next task here.
        assert_eq!(tokio::task::spawn_blocking(nice).await.unwrap(), before);
    }

    #[tokio::test]
    async fn work_at_normal_priority_is_as_nice_as_others_and_only_meanwhile() {
        let before = nice();
        let hurried = at_normal_priority(async { start("urgent", nice).await.unwrap() }).await;
        assert_eq!((hurried, start("takes-its-time", nice).await.unwrap()), (before, before.max(NICEST)));
    }

    #[tokio::test]
    async fn a_panic_is_told_to_who_waits() {
        let ended = start("panics", || -> u64 { panic!("as it should") }).await;
        assert_eq!(*ended.unwrap_err().into_panic().downcast::<&str>().unwrap(), "as it should");
    }

    #[test]
    fn work_goes_on_without_a_waiter_and_runtime_shutdown_waits() {
        let (done, result) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { drop(start("goes-on", move || done.send(7))) });
        drop(runtime);
        assert_eq!(result.try_recv(), Ok(7));
    }
}
