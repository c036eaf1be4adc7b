"""What filter and caches keep away from the database, and whether the filter is enforcing."""

from .vocabulary import SECOND_IS_A_SHARE, SHARE, STACKED, mapped, panel, per_second, quantiles, share

STATES = {"1": ("enforcing", "green"), "2": ("shadow", "blue"), "3": ("cold", "orange"), "4": ("degraded", "red")}
FALSE_POSITIVES = per_second("bloomguard_filter_false_positives_total", "keyspace")
TRUE_NEGATIVES = per_second("bloomguard_filter_checks_total", "keyspace", 'verdict="absent"')

ROWS = {
    "Hits, Misses, False positives": [
        panel(
            "Hits", 8, "reqps",
            "Values found in a cache, by tier: hot is in the process, redis is the shared cache. Falls with the traffic; when it falls alone, entries are dropped or "
            "expire: look at cache.ttl, cache.hot_capacity and Redis's memory.",
            (per_second("bloomguard_cache_requests_total", "keyspace, tier", 'result="hit"'), "{{keyspace}} {{tier}}"),
        ),
        panel(
            "Misses", 8, "reqps",
            "Cache reads that found nothing to use, by tier. A lookup that misses both tiers goes on to the database. Many for long: cache.ttl is too short, or the keys are too many to be cached.",
            (per_second("bloomguard_cache_requests_total", "keyspace, tier", 'result="miss"'), "{{keyspace}} {{tier}}"),
        ),
        panel(
            "False positives", 8, "reqps",
            "Keys that passed the filter and that the database said are absent, and their share of all absent keys seen, FP / (FP + TN). Compare the share with "
            "filter.false_positive_rate; where it stays above, the filter is too full: see the load ratio, and rebuild.",
            (FALSE_POSITIVES, "{{keyspace}} per second"),
            (f"{FALSE_POSITIVES} / ({FALSE_POSITIVES} + {TRUE_NEGATIVES})", "{{keyspace}} share"),
            overrides=[SECOND_IS_A_SHARE],
        ),
    ],
    "Lookups": [
        panel(
            "Lookups by source", 12, "reqps",
            "filter: absent, at no cost. hot, redis: cached. backend: one call of the database. none: 503; see the error share.",
            (per_second("bloomguard_lookups_total", "source"), "{{source}}"), custom=STACKED,
        ),
        panel(
            "Backend calls avoided", 12, "reqps",
            "Lookups that the filter, a cache, or another lookup's load answered: what the database would have to serve without the guard. When it falls, see Hits and the states.",
            (per_second("bloomguard_lookups_total", "keyspace", 'source=~"filter|hot|redis"'), "{{keyspace}} filter and caches"),
            (per_second("bloomguard_coalesced_lookups_total", "keyspace"), "{{keyspace}} shared loads"),
        ),
        panel(
            "Guarded share", 8, "percentunit",
            "Lookups that the filter answered, of all. It is the share of absent keys in the traffic; zero while a keyspace does not enforce.",
            (share("bloomguard_lookups_total", "keyspace", 'source="filter"'), "{{keyspace}}"),
            defaults=SHARE,
        ),
        panel(
            "Requests", 8, "reqps",
            "Requests on all listeners, by route and status. Many 400 or 414: a caller with wrong keys. 503: see the error share.",
            (per_second("bloomguard_http_requests_total", "route, code", 'route=~"keys|check|lookup|invalidate|unknown"', scope="%") + " > 0", "{{route}} {{code}}"),
        ),
        panel(
            "Error share", 8, "percentunit",
            "Lookups answered 503, of all. See the backend's outcomes and what is shed on the page of dependencies; clients ask again after Retry-After.",
            (share("bloomguard_lookups_total", "keyspace", 'result="error"'), "{{keyspace}}"),
            defaults=SHARE,
        ),
        panel(
            "Lookup latency", 12, "s",
            "Median and 99th percentile by who answered, measured inside the guard. filter and hot are microseconds; where they are not, CPU is short. backend: see the database.",
            *quantiles("bloomguard_lookup_duration_seconds", "source", "{{source}}"),
        ),
        panel(
            "Lookup latency, heat map", 12, "s",
            "How many lookups took how long. Two bands, memory and database, are right; what lies between deadline and the upper edge was late.",
            ("sum by (le) (rate(bloomguard_lookup_duration_seconds_bucket{@}[i]))", "{{le}}"), kind="heatmap",
        ),
    ],
    "States": [
        panel(
            "State of each keyspace and instance", 16, "none",
            "Only enforcing answers 404 from the filter; in every other state lookups go to caches and database. /status says why, docs/runbook.md what to do.",
            ("max by (keyspace, instance) (sum without (state) (" + " or ".join(
                f'bloomguard_keyspace_state{{@, state="{state}"}} * {value}' for value, (state, _) in STATES.items()) + "))", "{{keyspace}} {{instance}}"),
            kind="state-timeline", mergeValues=True, defaults=mapped(STATES),
        ),
        panel(
            "State changes", 8, "none",
            "Times that a state was entered. One that comes and goes costs the database its protection each time: see the reason in /status.",
            ("sum by (keyspace, state) (increase(bloomguard_keyspace_state_changes_total{@}[i]))", "{{keyspace}} {{state}}"),
        ),
        panel(
            "Seconds not protected, by reason", 16, "s",
            "Time in which an instance answered no 404 from the filter, by the reason in /status: the database got the absent keys, last in the queue of its cap. The longest of all instances. docs/runbook.md says what ends each reason.",
            ("max by (keyspace, reason) (increase(bloomguard_keyspace_unprotected_seconds_total{@}[i]))", "{{keyspace}} {{reason}}"), custom=STACKED,
        ),
        panel(
            "Versions", 8, "none",
            "Instances by version. Two of them for longer than a rollout: it hangs.",
            ("count by (version) (bloomguard_build_info{%})", "{{version}}"), kind="stat",
        ),
        panel(
            "Bypasses", 8, "reqps",
            "Lookups that asked to skip filter and caches. Each costs the database a call: a client that always does has no guard.",
            (per_second("bloomguard_bypasses_total", "keyspace"), "{{keyspace}}"),
        ),
        panel(
            "Announces, deletes, invalidations", 16, "ops",
            "Keys by what was done with them. not_durable and full were answered 503: their rows must not be committed; Redis or the disk is the cause.",
            (per_second("bloomguard_announces_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
            (per_second("bloomguard_deletes_total", "keyspace"), "{{keyspace}} deleted"),
            (per_second("bloomguard_invalidated_keys_total", "keyspace"), "{{keyspace}} invalidated"),
        ),
        panel(
            "Reloads of the configuration", 12, "none",
            "By outcome. failed: the files are bad and nothing changed; the log has every mistake. needs_restart: part of the change is active, the log names the rest.",
            ("sum by (outcome) (increase(bloomguard_config_reloads_total{%}[i]))", "{{outcome}}"),
        ),
        panel(
            "Configuration not active", 12, "none",
            "Instances whose configuration was bad when it was last read, and the settings that wait for a restart. Fix the files, or restart one instance after another.",
            ("sum by (instance) (1 - bloomguard_config_last_reload_successful{%})", "{{instance}} bad"),
            ("max by (instance) (bloomguard_config_settings_awaiting_restart{%})", "{{instance}} settings"),
        ),
    ],
}
