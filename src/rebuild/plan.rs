//! When the filter is rebuilt and which checks a build must pass, as far as that can change while the process runs.

use tokio::sync::watch;

use super::schedule::Schedule;
use crate::config::RebuildConfig;

/// `[keyspaces.NAME.rebuild]`, with its parsed schedule.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) config: RebuildConfig,
    pub(super) schedule: Schedule,
}

impl Plan {
    pub(super) fn new(config: &RebuildConfig) -> Result<Self, String> {
        Ok(Self { config: config.clone(), schedule: Schedule::new(&config.schedule, config.jitter)? })
    }
}

/// Watches the current rebuild plan.
#[derive(Debug, Clone)]
pub(super) struct Plans(watch::Receiver<Plan>);

impl Plans {
    pub(super) fn new(plan: Plan) -> (watch::Sender<Plan>, Self) {
        let (sender, receiver) = watch::channel(plan);
        (sender, Self(receiver))
    }

    pub(super) fn current(&self) -> Plan {
        self.0.borrow().clone()
    }

    /// Waits as the plan says, and starts again when the plan's times change. Other changes keep the wait: drawing the
    /// jitter again could move the start to after the night.
    pub(super) async fn follow<F: Future<Output = ()>>(&self, wait: impl Fn(Plan) -> F) {
        let mut plans = self.0.clone();
        loop {
            let plan = plans.borrow_and_update().clone();
            let other_times =
                |new: &Plan| (&new.config.schedule, new.config.jitter) != (&plan.config.schedule, plan.config.jitter);
            tokio::select! {
                () = wait(plan.clone()) => return,
                // If the sender is gone, the plan stays as it is.
                Ok(_) = plans.wait_for(other_times) => {}
            }
        }
    }
}
