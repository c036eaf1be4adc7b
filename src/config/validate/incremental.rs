//! `[keyspaces.NAME.source.incremental]`: statements that can be polled, and times that keep what `freshness = "polled"` promises.

use std::time::Duration;

use humantime::format_duration;

use super::keyspace::query_given;
use super::{Section, shown_text};
use crate::config::{Freshness, IncrementalConfig, KeyspaceConfig};
use crate::sqltext::{Dialect, has_word, parameter_numbers};

/// All rows of so long are read again by each poll: more means a mistyped unit.
const LONGEST_OVERLAP: Duration = Duration::from_secs(24 * 3600);

pub(super) fn check(settings: &IncrementalConfig, dialect: Option<Dialect>, section: &mut Section<'_>) {
    section.duration("interval", settings.interval);
    section.duration("overlap", settings.overlap);
    section.must(settings.overlap <= LONGEST_OVERLAP, "overlap", "be at most 1day", format_duration(settings.overlap));
    let given = query_given(&settings.query, section);
    let Some(dialect) = dialect else { return };
    if given {
        let taken = parameter_numbers(&settings.query, dialect);
        let rule = format!("take the watermark as its only parameter, {}", dialect.first_parameter());
        section.must(taken.len() == 1 && taken.contains(&1), "query", &rule, shown_text(&settings.query));
        // Rows of one watermark on both sides of a limit would be lost, and a poll keeps no more of them than it works on.
        let limited = has_word(&settings.query, dialect, &["LIMIT", "FETCH"]);
        section.must(
            !limited,
            "query",
            "list all rows, without LIMIT or FETCH: a poll reads them as a stream",
            shown_text(&settings.query),
        );
    }
    if let Some(watermark) = &settings.watermark {
        section.must(
            parameter_numbers(watermark, dialect).is_empty(),
            "watermark",
            "take no parameters",
            shown_text(watermark),
        );
        section.must(!watermark.trim().is_empty(), "watermark", "be a statement", shown_text(watermark));
    }
}

/// Whether what polls find is what the freshness promises.
pub(super) fn promise(keyspace: &KeyspaceConfig, section: &mut Section<'_>) {
    let tables = || keyspace.source.iter().map(|source| source.incremental.as_ref());
    let polled = tables().flatten().count();
    // What was rejected has been taken out, and was meant.
    let rejected: Vec<bool> = (0..tables().len())
        .map(|index| section.was_rejected(&format!("{}.incremental", keyspace.source.key(index))))
        .collect();
    if section.was_rejected("freshness") {
        return;
    }
    if keyspace.freshness == Freshness::Static && polled > 0 {
        section.add("freshness", "\"static\" is a key set that does not change: leave source.incremental out");
    }
    // Polls that leave a source out show nothing of the key set, whatever its freshness.
    for (index, _) in tables().enumerate().filter(|(index, table)| polled > 0 && table.is_none() && !rejected[*index]) {
        let key = keyspace.source.key(index);
        section.add(&format!("{key}.incremental"), "is required: all sources of a keyspace are polled, or none");
    }
    if keyspace.freshness != Freshness::Polled {
        return;
    }
    if polled == 0 && !rejected.contains(&true) {
        section.add("freshness", "\"polled\" needs source.incremental, which says how new keys are found");
    }
    for (index, source) in keyspace.source.iter().enumerate() {
        let Some(settings) = &source.incremental else { continue };
        let (key, longest) = (format!("{}.incremental.interval", keyspace.source.key(index)), keyspace.max_staleness);
        if settings.interval >= longest && !section.was_rejected("max_staleness") && !section.was_rejected(&key) {
            let rule = format!(
                "be shorter than max_staleness = {}, else the keyspace stops rejecting between two polls",
                format_duration(longest)
            );
            section.must(false, &key, &rule, format_duration(settings.interval));
        }
    }
}
