//! A log that is younger than the commit window: what was found of earlier announces, and when the filter is trusted.

use std::time::Duration;

use crate::clock::Moment;

/// A process has met a young log, and nothing shows that nobody announced before it was made.
#[derive(Debug, Clone)]
pub(crate) struct YoungStart {
    /// A scan that begins then finds the row of every earlier announce.
    pub(crate) until: Moment,
    /// What was found, in words.
    pub(crate) evidence: String,
    /// Something was: this is no first start.
    pub(crate) is_known_to_be_later: bool,
}

impl YoungStart {
    pub(crate) fn describe(&self, now: Moment) -> String {
        let left = Duration::from_secs(self.until.since(now).as_nanos().div_ceil(1_000_000_000) as u64);
        let what =
            if self.is_known_to_be_later { "the delta log is younger than the commit window" } else { "first start" };
        let when = match left {
            Duration::ZERO => "enforcing after the next scan".to_owned(),
            left => format!("enforcing in {}, after a scan", humantime::format_duration(left)),
        };
        let evidence = &self.evidence;
        format!("{what}: {when}; earlier announces can't be excluded ({evidence}); a shorter commit_window shortens it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_down_and_names_what_was_found() {
        let until = Moment::from_nanos(30_000_000_000);
        let mut start = YoungStart { until, evidence: "no journal".into(), is_known_to_be_later: false };
        for (nanos, when) in [
            (2_500_000_000, "first start: enforcing in 28s, after a scan; "),
            (29_999_999_999, "first start: enforcing in 1s, after a scan; "),
            (30_000_000_000, "first start: enforcing after the next scan; "),
            (31_000_000_000, "first start: enforcing after the next scan; "),
        ] {
            let told = start.describe(Moment::from_nanos(nanos));
            assert!(told.starts_with(when) && told.contains("can't be excluded (no journal)"), "{told}");
        }
        start.is_known_to_be_later = true;
        assert!(!start.describe(until).contains("first start"));
    }
}
