//! Waiting for a condition. Tests poll through here and nowhere else: a pause of a fixed length proves nothing.

use std::time::{Duration, Instant};

/// Longer than any pause of a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);

/// A wait under way.
pub struct Wait {
    until: Instant,
}

impl Wait {
    pub fn within(limit: Duration) -> Self {
        Self { until: Instant::now() + limit }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    pub async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
    }

    /// As [`pause`](Self::pause), on a thread without a runtime.
    pub fn pause_blocking(&self) {
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the condition holds, which may await; fails with the message if it does not within two minutes.
/// `within <limit> =>` in front sets another limit.
macro_rules! assert_eventually {
    (within $limit:expr => $condition:expr, $($message:tt)+) => {{
        let wait = $crate::support::wait::Wait::within($limit);
        loop {
            if $condition {
                break;
            }
            assert!(!wait.is_over(), $($message)+);
            wait.pause().await;
        }
    }};
    ($condition:expr, $($message:tt)+) => {
        $crate::support::assert_eventually!(within $crate::support::wait::PATIENCE => $condition, $($message)+)
    };
}

pub(crate) use assert_eventually;

/// Waits until `condition` holds; fails with `what` if it does not.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    assert_eventually!(condition(), "waited in vain: {what}");
}

/// As [`eventually`], for threads without a runtime.
#[track_caller]
pub fn eventually_blocking(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = Wait::within(PATIENCE);
    while !condition() {
        assert!(!wait.is_over(), "waited in vain: {what}");
        wait.pause_blocking();
    }
}
