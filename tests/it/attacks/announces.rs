//! Announces that fill memory or the filter.
