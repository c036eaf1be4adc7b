//! Circuit breakers: one series per dependency and state. Of several breakers for one dependency the worst state is
//! shown.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::Registry;
use super::series::Gauge;
use crate::labels::{BreakerState, Dependency};

/// The states of all breakers.
#[derive(Debug)]
pub struct BreakerMetrics {
    /// By dependency and state.
    gauges: Vec<Vec<Gauge>>,
    /// By dependency and the breaker's name among those of the dependency.
    states: Mutex<BTreeMap<(Dependency, String), BreakerState>>,
}

impl BreakerMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let of = |dependency: &Dependency| {
            let gauge = |state: &BreakerState| {
                let labels = [("dependency", dependency.as_str()), ("state", state.as_str())];
                registry.gauge("breaker_state", "State of a circuit breaker: 1 for the current state, else 0", &labels)
            };
            BreakerState::ALL.iter().map(gauge).collect()
        };
        let breakers = Self { gauges: Dependency::ALL.iter().map(of).collect(), states: Mutex::default() };
        Dependency::ALL.iter().for_each(|dependency| breakers.show(*dependency, BreakerState::Closed));
        breakers
    }

    /// Sets the state of the breaker `name` of `dependency`.
    pub fn set(&self, dependency: Dependency, name: &str, state: BreakerState) {
        let mut states = self.states.lock();
        states.insert((dependency, name.to_owned()), state);
        let any = |state| states.iter().any(|((of, _), now)| *of == dependency && *now == state);
        let worst = [BreakerState::Open, BreakerState::HalfOpen].into_iter().find(|state| any(*state));
        // Under the lock, so that the most recent state is shown.
        self.show(dependency, worst.unwrap_or(BreakerState::Closed));
    }

    fn show(&self, dependency: Dependency, state: BreakerState) {
        for (each, gauge) in BreakerState::ALL.iter().zip(&self.gauges[dependency as usize]) {
            gauge.set(f64::from(u8::from(*each == state)));
        }
    }
}
