//! Work that only a rebuild needs and that takes a processor for long: on threads of its own, which those that answer come before.
//!
//! Nobody waits for an answer while keys are read, a filter is filled and the like. A scheduler that knows nothing of that gives them the processor as it gives
//! it to those who answer, for milliseconds at a time, which is a hundred times what a lookup takes. So their threads are made nice.
//!
//! A thread may become nicer, and needs a privilege to take that back. So they are no threads of the runtime's pool, which would stay nice for whatever comes
//! next. One of the pool waits for each of them: who ends the runtime waits for them as for all that blocks, and a simulated clock stands still meanwhile. What a
//! nice thread starts is nice too, so what runs here starts no threads, and nothing on the pool, whose threads are started by who needs them.
//!
//! **Nothing that lookups or announces wait for is to be held here**, beyond the few instructions of a queue or of the allocator: who holds a lock and loses the
//! processor to them has them wait for as long as the scheduler likes. That is the longer the nicer a thread is.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::task::JoinHandle;
use tokio::task_local;

/// As nice as can be: beside a thread that wants all the processor such a one gets a seventieth of it, and beside others all that they leave. Under `SCHED_IDLE` it
/// would get a three-hundredth, and under a flood no filter would be done for minutes, see docs/benchmarks.md. Builds for tests run beside a hundred others that want all the
/// processor, which no process that serves does, and are less nice.
const NICEST: i32 = if cfg!(debug_assertions) { 5 } else { 19 };
/// How long a turn at the processor it asks for, the longest that can be. It gets none longer than others do. But on kernels that deal in turns, Linux since 6.12, who
/// wakes up may take the processor at once only from a thread of longer turns than its own, and else waits for the end of this one.
const TURN: Duration = Duration::from_millis(100);

task_local! {
    static HURRY: ();
}

/// Has what is started meanwhile come before nobody and behind nobody: as long as there is no filter to be believed, lookups have the backend to wait for, and that has the flood.
pub async fn in_a_hurry<F: Future>(work: F) -> F::Output {
    HURRY.scope((), work).await
}

/// Starts `work` on a thread of that name, whether or not anybody waits for its end; what may last must learn by itself that nobody wants it any more.
pub fn start<T: Send + 'static>(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let hurries = HURRY.try_with(|()| ()).is_ok();
    tokio::task::spawn_blocking(move || run_on_thread(name, !hurries, work))
}

/// Waits, on a thread that may block, for `work` on a thread of that name.
///
/// # Panics
/// Where `work` does, and where the system has no thread left, as the runtime's pool does then.
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
    // For Linux a process without a number is the thread that calls.
    let nice = getpriority_process(None).and_then(|already| {
        let nice = already.max(NICEST);
        // Some sandboxes know the older call only.
        be_nice(nice).or_else(|_| setpriority_process(None, nice))
    });
    if let Err(error) = nice {
        static TOLD: AtomicBool = AtomicBool::new(false);
        // Relaxed: nothing hangs on it but how often it is told.
        if !TOLD.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "rebuilds take the processor as lookups do, for threads can't be made nicer here");
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
        // Of this policy it is the length of a turn; kernels before 6.12 take no notice of it.
        sched_runtime: TURN.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: thread 0 is the one that calls; the kernel reads `size` bytes there, which live until it returns, and keeps no pointer.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns free memory to the system. glibc keeps what is free below something that is not: after a flood of small entries, half of what they took.
/// Takes milliseconds, so not for threads that serve.
#[allow(unsafe_code)] // No crate of ours has this call.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time from any thread, and touches nothing that is allocated.
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
        // Of the pool, whose threads are given the next work, and which has one here.
        assert_eq!(tokio::task::spawn_blocking(nice).await.unwrap(), before);
    }

    #[tokio::test]
    async fn who_hurries_is_as_nice_as_others_and_only_meanwhile() {
        let before = nice();
        let hurried = in_a_hurry(async { start("hurries", nice).await.unwrap() }).await;
        assert_eq!((hurried, start("takes-its-time", nice).await.unwrap()), (before, before.max(NICEST)));
    }

    #[tokio::test]
    async fn a_panic_is_told_to_who_waits() {
        let ended = start("panics", || -> u64 { panic!("as it should") }).await;
        assert_eq!(*ended.unwrap_err().into_panic().downcast::<&str>().unwrap(), "as it should");
    }

    #[test]
    fn work_goes_on_without_anybody_who_waits_for_it_and_a_runtime_that_ends_waits() {
        let (done, result) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { drop(start("goes-on", move || done.send(7))) });
        drop(runtime);
        assert_eq!(result.try_recv(), Ok(7));
    }
}
