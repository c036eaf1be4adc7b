//! The part of the product's clock that the memory of announces needs; here time stands still.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Self {
        Self(Duration::from_secs(1))
    }

    pub fn plus(self, by: Duration) -> Self {
        Self(self.0 + by)
    }

    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
