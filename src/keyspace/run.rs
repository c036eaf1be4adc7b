//! The background tasks of a keyspace.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::Keyspace;
use crate::background;
use crate::clock::Moment;

/// Bytes of announces whose windows have closed that are worth a search for pages to return.
const WORTH_RETURNING: usize = 8 << 20;

impl Keyspace {
    /// Runs the keyspace's background tasks until it is dropped, which ends all of them at once: after that no task holds
    /// a file of the keyspace. Only the first call does anything useful.
    pub async fn run(self: Arc<Self>) {
        let follow = async {
            if let Some(follower) = &self.follower {
                follower.run().await;
            }
        };
        tokio::join!(
            self.supervise("resend announces", self.writer.resend_after_reconnects()),
            self.supervise("follow the log", follow),
            self.supervise("canary", self.audit.canary.run()),
            self.supervise("classify false negatives", self.audit.false_negatives.run()),
            self.supervise("write snapshots", Arc::clone(&self.snapshots).run()),
            self.supervise("watch", self.watch()),
        );
    }

    /// A task that panics does not end the others.
    async fn supervise(&self, task: &'static str, running: impl Future<Output = ()>) {
        if AssertUnwindSafe(running).catch_unwind().await.is_err() {
            tracing::error!(keyspace = self.name(), task, "background task panicked");
        }
    }

    /// Announces nothing any more: other instances need not wait for this one.
    pub async fn leave_roster(&self) {
        if let Some(membership) = &self.writer.membership {
            membership.leave().await;
        }
    }

    /// Writes the last snapshot of this process, if that can be done until `deadline`.
    pub async fn last_snapshot(self: Arc<Self>, deadline: Instant) {
        Arc::clone(&self.snapshots).write_last(deadline).await;
    }

    /// Once a second: reports a state that changes without a request, ends a hold, asks for a larger filter, and
    /// returns memory.
    async fn watch(&self) {
        let mut returned = Returned::default();
        let mut every = tokio::time::interval(Duration::from_secs(1));
        loop {
            every.tick().await;
            let now = Moment::now();
            self.freshness.lift_finished_hold(now);
            self.freshness.observe_state();
            let windows = &self.writer.windows;
            windows.apply_longest();
            windows.recent.purge(now);
            self.writer.shared.purge();
            returned.look(windows.recent.held().1);
            self.watch_growth(now);
            self.audit.canary.sampler.tick(self.stats.absent_verdicts(), now);
        }
    }

    fn watch_growth(&self, now: Moment) {
        let last = self.last_rebuild().map_or(Duration::ZERO, |last| Duration::from_secs_f64(last.duration_seconds));
        if self.stats.growth().watch(self.name(), self.prober.current().as_deref(), last, now) {
            self.builds.signal.request();
        }
    }
}

/// Returns the memory of announces to the system once much of it is free.
#[derive(Default)]
struct Returned {
    /// Most bytes that were held since the last return.
    most: usize,
}

impl Returned {
    fn look(&mut self, held: usize) {
        self.most = self.most.max(held);
        // The rest at the end is returned too, however little it is.
        let is_last = held == 0 && self.most >= WORTH_RETURNING / 8;
        if is_last || held + WORTH_RETURNING <= self.most && held <= self.most / 2 {
            self.most = held;
            // Beside this task; nothing waits for it.
            drop(tokio::task::spawn_blocking(background::give_memory_back));
        }
    }
}
