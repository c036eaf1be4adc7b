//! When the filter is built anew and what a build must pass, as far as that can change while the process runs.

use tokio::sync::watch;

use super::schedule::Schedule;
use crate::config::RebuildConfig;

/// `[keyspaces.NAME.rebuild]`, its schedule read.
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

/// The plan as it is at present, for who goes by it.
#[derive(Debug, Clone)]
pub(super) struct Plans(watch::Receiver<Plan>);

impl Plans {
    pub(super) fn new(plan: Plan) -> (watch::Sender<Plan>, Self) {
        let (sender, receiver) = watch::channel(plan);
        (sender, Self(receiver))
    }

    pub(super) fn present(&self) -> Plan {
        self.0.borrow().clone()
    }

    /// Waits for what the plan says, and begins anew where its times change meanwhile. Of other changes it goes on: a start that was drawn is not drawn again,
    /// which could be after a night.
    pub(super) async fn follow<F: Future<Output = ()>>(&self, wait: impl Fn(Plan) -> F) {
        let mut plans = self.0.clone();
        loop {
            let plan = plans.borrow_and_update().clone();
            let other_times =
                |new: &Plan| (&new.config.schedule, new.config.jitter) != (&plan.config.schedule, plan.config.jitter);
            tokio::select! {
                () = wait(plan.clone()) => return,
                // Once nobody can change it any more, it stays as it is.
                Ok(_) = plans.wait_for(other_times) => {}
            }
        }
    }
}
