//! The number of keys of a scan, and whether so few can be right.

use super::error::BuildError;

/// Keys of a scan, for each source of a union.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyCounts(Vec<u64>);

impl FromIterator<u64> for KeyCounts {
    fn from_iter<I: IntoIterator<Item = u64>>(counts: I) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl KeyCounts {
    /// Keys of each source.
    pub(super) fn each(&self) -> Vec<u64> {
        self.0.clone()
    }

    /// Keys of all sources.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The reference values for the number of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountRule<'a> {
    /// Keys of the last scan.
    pub(super) last: Option<&'a KeyCounts>,
    /// `filter.expected_keys`.
    pub(super) expected: Option<u64>,
    /// `rebuild.min_keys_ratio`.
    pub(super) ratio: f64,
    /// `source.allow_empty`.
    pub(super) allow_empty: bool,
    /// An operator has confirmed that fewer keys are right.
    pub(super) accept_fewer: bool,
}

impl CountRule<'_> {
    /// Checks that the count has not collapsed, for each source and in total, and is not zero unless that is allowed.
    pub(super) fn validate(&self, counts: &KeyCounts) -> Result<(), BuildError> {
        let keys = counts.total();
        if keys == 0 && !self.allow_empty {
            return Err(BuildError::Empty);
        }
        if self.accept_fewer {
            return Ok(());
        }
        if let Some(last) = self.last
            && last.0.len() > 1
        {
            // One of many sources can lose all its keys, and the sum would hardly show it.
            for (member, (keys, last)) in counts.0.iter().zip(&last.0).enumerate() {
                self.compare(Some(member), *keys, *last, LAST_SCAN)?;
            }
        }
        // `allow_empty` means that the source may have no keys yet, not that it may lose keys.
        let expected = self.expected.filter(|_| keys > 0).map(|keys| (keys, "expected (filter.expected_keys)"));
        match self.last.map(|last| (last.total(), LAST_SCAN)).or(expected) {
            Some((reference, of)) => self.compare(None, keys, reference, of),
            None => Ok(()),
        }
    }

    fn compare(&self, member: Option<usize>, keys: u64, reference: u64, of: &'static str) -> Result<(), BuildError> {
        if (keys as f64) < reference as f64 * self.ratio {
            return Err(BuildError::Collapsed { member, keys, reference, of, ratio: self.ratio });
        }
        Ok(())
    }
}

const LAST_SCAN: &str = "of the last scan";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(keys: u64) -> KeyCounts {
        KeyCounts::from_iter([keys])
    }

    #[test]
    fn a_collapsed_count_is_rejected_with_its_figures() {
        let last = one(1_000);
        let rule =
            CountRule { last: Some(&last), expected: Some(5_000), ratio: 0.9, allow_empty: false, accept_fewer: false };
        assert!(rule.validate(&one(900)).is_ok());
        let error = rule.validate(&one(899)).unwrap_err().to_string();
        assert!(
            error.starts_with("the source has 899 keys") && error.contains("1000") && error.contains("0.9"),
            "{error}"
        );
        assert!(CountRule { accept_fewer: true, ..rule }.validate(&one(1)).is_ok());
        assert!(CountRule { last: None, expected: None, ..rule }.validate(&one(1)).is_ok());
        assert!(matches!(
            CountRule { last: None, ..rule }.validate(&one(899)),
            Err(BuildError::Collapsed { reference: 5_000, .. })
        ));
    }

    #[test]
    fn a_source_may_be_empty_at_first_but_may_not_become_empty() {
        let last = one(1_000);
        let rule = CountRule { last: None, expected: Some(1_000), ratio: 0.9, allow_empty: true, accept_fewer: false };
        assert!(rule.validate(&one(0)).is_ok());
        assert!(matches!(CountRule { last: Some(&last), ..rule }.validate(&one(0)), Err(BuildError::Collapsed { .. })));
        assert!(CountRule { last: Some(&last), accept_fewer: true, ..rule }.validate(&one(0)).is_ok());
        assert!(matches!(
            CountRule { allow_empty: false, accept_fewer: true, ..rule }.validate(&one(0)),
            Err(BuildError::Empty)
        ));
    }

    #[test]
    fn each_source_is_compared_with_its_own_last_count() {
        let last: KeyCounts = [1_000; 20].into_iter().collect();
        let rule = CountRule { last: Some(&last), expected: None, ratio: 0.9, allow_empty: false, accept_fewer: false };
        let now = |keys| (0..20).map(|member| if member == 7 { keys } else { 1_000 }).collect::<KeyCounts>();
        assert!(rule.validate(&now(900)).is_ok());
        let error = rule.validate(&now(1)).unwrap_err();
        assert!(
            error.to_string().starts_with("source[7] has 1 keys, fewer than min_keys_ratio = 0.9 of the 1000"),
            "{error}"
        );
        assert!(CountRule { accept_fewer: true, ..rule }.validate(&now(1)).is_ok());
    }
}
