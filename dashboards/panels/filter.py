"""The filters: how full, how fresh, how right."""

from .vocabulary import SHARE, STACKED, panel, per_second, thresholds

ROWS = {
    "Size": [
        panel(
            "Load ratio", 16, "percentunit",
            "Keys of the capacity, for each keyspace and instance. Over 1 the false-positive rate is higher than asked; a rebuild starts by itself at 0.95. Where it stays full, raise filter.headroom or expected_keys.",
            ("max by (keyspace, instance) (bloomguard_filter_load_ratio{@})", "{{keyspace}} {{instance}}"),
            kind="status-history", defaults=thresholds(("green", None), ("yellow", 0.9), ("red", 1)),
        ),
        panel(
            "Fill", 8, "percentunit",
            "Bits that are set. About half at capacity; more means more false positives: see the load ratio.",
            ("max by (keyspace) (bloomguard_filter_fill_ratio{@})", "{{keyspace}}"), defaults=SHARE,
        ),
        panel(
            "False-positive rate, asked, estimated and observed", 12, "percentunit",
            "filter.false_positive_rate, what the fill predicts, and FP / (FP + TN) since the swap. Estimated over asked: the filter is too full, see the load ratio. Observed far over estimated: one absent key that passes is asked for again and again, or source.query lists rows that backend.query does not find.",
            ("max by (keyspace) (bloomguard_filter_target_fpr{@})", "{{keyspace}} asked"),
            ("max by (keyspace) (bloomguard_filter_estimated_fpr{@})", "{{keyspace}} estimated"),
            ("max by (keyspace) (bloomguard_filter_observed_fpr{@})", "{{keyspace}} observed"),
        ),
        panel(
            "Keys and capacity", 6, "short",
            "Keys in the filter, estimated, what it was sized for, and the keys that the last scan read.",
            ("max by (keyspace) (bloomguard_filter_items{@})", "{{keyspace}} keys"),
            ("max by (keyspace) (bloomguard_filter_capacity{@})", "{{keyspace}} capacity"),
            ("max by (keyspace) (bloomguard_rebuild_keys{@})", "{{keyspace}} scanned"),
        ),
        panel(
            "Bytes", 6, "bytes",
            "Active filter, and keys that are held exactly (backend.kind = \"set\"), of one instance. A rebuild needs as much again: compare with the memory limit.",
            ("max by (keyspace) (bloomguard_filter_bytes{@})", "{{keyspace}} filter"),
            ("max by (keyspace) (bloomguard_set_bytes{@})", "{{keyspace}} set"),
        ),
    ],
    "Freshness": [
        panel(
            "Freshness lag", 8, "s",
            "Since the start of what the promise rests on: the last complete poll, else the last scan. Past max_staleness (polled, rebuilt) the filter answers no 404: see rebuilds and polls.",
            ("max by (keyspace) (bloomguard_filter_freshness_lag_seconds{@})", "{{keyspace}}"),
            ("min by (keyspace) (bloomguard_keyspace_max_staleness_seconds{@})", "{{keyspace}} max_staleness"),
        ),
        panel(
            "Age", 8, "s",
            "Since the filter became active. It should fall to zero as often as rebuild.schedule says.",
            ("max by (keyspace) (bloomguard_filter_age_seconds{@})", "{{keyspace}}"),
        ),
        panel(
            "Generation", 8, "none",
            "Number of the active filter of each instance. One that stays behind fails to build: see its log.",
            ("max by (keyspace, instance) (bloomguard_filter_generation{@})", "{{keyspace}} {{instance}}"),
        ),
    ],
    "Rebuilds": [
        panel(
            "Rebuilds", 8, "none",
            "Rebuilds that ended, by outcome. All but swapped kept the old filter; docs/runbook.md says what to do about each.",
            ("sum by (keyspace, outcome) (increase(bloomguard_rebuilds_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Duration of rebuilds", 8, "s",
            "Mean since the start. It must fit between two scheduled ones, and into max_staleness with freshness = \"rebuilt\".",
            ("sum by (keyspace) (bloomguard_rebuild_duration_seconds_sum{@}) / sum by (keyspace) (bloomguard_rebuild_duration_seconds_count{@})", "{{keyspace}}"),
        ),
        panel(
            "Since the last rebuild", 8, "s",
            "Of the instance whose last one is longest ago. Longer than the schedule: builds fail.",
            ("time() - min by (keyspace) (bloomguard_rebuild_last_success_timestamp_seconds{@} > 0)", "{{keyspace}}"),
        ),
        panel(
            "Turns to scan", 12, "none",
            "Scans of instances that share a Redis, by how their turn came. timed_out and unreachable may have run beside others.",
            ("sum by (keyspace, outcome) (increase(bloomguard_rebuild_turns_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Snapshots", 12, "none",
            "Filters that were written to disk, and starts from one, by outcome. Where none is written, a restart has to scan before it enforces.",
            ("sum by (keyspace, outcome) (increase(bloomguard_snapshots_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
    ],
    "Right or wrong": [
        panel(
            "False negatives", 8, "none",
            "Rows that were found although the filter had said absent: wrong answers while it enforces. Find the writer that does not announce, or the rows that source.query does not list; GET …/mismatches on the admin listener lists them. Explained: announces were lost, as by a restart of Redis, while the keyspace was degraded for it.",
            ("sum by (keyspace) (increase(bloomguard_filter_false_negatives_total{@}[i]))", "{{keyspace}}"),
            ("sum by (keyspace) (increase(bloomguard_filter_false_negatives_explained_total{@}[i]))", "{{keyspace}} explained"),
        ),
        panel(
            "Canary checks", 8, "none",
            "Absences that the filter answered and that were looked for at the backend as well. Every false_negative is a row that was answered 404.",
            ("sum by (keyspace, result) (increase(bloomguard_filter_canary_checks_total{@}[i]))", "{{keyspace}} {{result}}"),
        ),
        panel(
            "Comparisons left to prove", 8, "none",
            "Absences that a keyspace without history still compares with the backend before its filter answers 404: canary.proof. Until then its state is shadow.",
            ("max by (keyspace) (bloomguard_keyspace_proof_remaining{@})", "{{keyspace}}"),
        ),
        panel(
            "Sampled source keys without a row", 8, "percentunit",
            "Of the keys that the last scan sampled: source and backend should agree. From a quarter on, /status warns.",
            ("max by (keyspace) (bloomguard_source_sample_absent_ratio{@})", "{{keyspace}}"),
        ),
        panel(
            "Distinct absent keys", 8, "short",
            "Distinct absent keys asked for in the last five minutes, at the busiest instance. Many more than usual are a flood of random keys: the filter takes it, see who sends it.",
            ("max by (keyspace) (bloomguard_filter_distinct_absent_keys{@})", "{{keyspace}}"),
        ),
        panel(
            "Distinct keys inserted", 8, "short",
            "Distinct keys that announces and polls have brought in the last five minutes, at the busiest instance. Far fewer than announces: a writer announces the same keys again and again.",
            ("max by (keyspace) (bloomguard_filter_distinct_inserted_keys{@})", "{{keyspace}}"),
        ),
        panel(
            "Verdicts", 12, "ops",
            "What the filter said, in every state that has one. In shadow, absent is what enforcing would have saved.",
            (per_second("bloomguard_filter_checks_total", "keyspace, verdict"), "{{keyspace}} {{verdict}}"), custom=STACKED,
        ),
        panel(
            "Keys held exactly", 12, "short",
            "Keys of the last scan where backend.kind is \"set\"; 0 of other keyspaces.",
            ("max by (keyspace) (bloomguard_set_keys{@})", "{{keyspace}}"),
        ),
    ],
    "Polls (keyspaces with source.incremental)": [
        panel(
            "Polls", 8, "none",
            "Polls for new keys, by outcome. Without a complete one within max_staleness the filter answers no 404: the log has the database's words.",
            ("sum by (keyspace, outcome) (increase(bloomguard_polls_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Keys found by polls", 8, "ops",
            "Rows that a poll found and the one before had not: new ones, and changed ones where the watermark changes too.",
            (per_second("bloomguard_polled_keys_total", "keyspace"), "{{keyspace}}"),
        ),
        panel(
            "Duration of polls", 8, "s",
            "Nine of ten polls took at most so long. Longer than interval: the watermark has no index, or overlap is very long.",
            ("histogram_quantile(0.9, sum by (le, keyspace) (rate(bloomguard_poll_duration_seconds_bucket{@}[i])))", "{{keyspace}}"),
        ),
    ],
}
