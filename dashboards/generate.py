#!/usr/bin/env python3
"""Writes the dashboards from the panels below: here, and in the chart, which can only carry files of its own.

    python3 dashboards/generate.py

Queries are PromQL with three abbreviations: {@} selects by job, namespace, pod and keyspace, {%} without the keyspace (for what has none),
and [i] is the rate interval. A panel's description says what it shows, and what to do when it is bad.
"""

import json
from pathlib import Path

PROCESS = 'job=~"$job", namespace=~"$namespace", pod=~"$pod"'
KEYSPACE = PROCESS + ', keyspace=~"$keyspace"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
STATES = {"1": ("enforcing", "green"), "2": ("shadow", "blue"), "3": ("cold", "orange"), "4": ("degraded", "red")}


def query(text):
    return text.replace("{@", "{" + KEYSPACE).replace("{%", "{" + PROCESS).replace("[i]", "[$__rate_interval]")


def panel(title, width, unit, description, *targets, kind="timeseries", **more):
    """One panel; targets are pairs of query and legend."""
    defaults = {"unit": unit, "min": 0, **more.pop("defaults", {})}
    overrides = more.pop("overrides", [])
    options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}
    extra = {}
    if kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False, **more.pop("custom", {})}
    elif kind == "heatmap":
        extra = {"format": "heatmap"}
        options = {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
            "yAxis": {"unit": unit},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": False},
        }
        defaults = {"unit": unit}
    elif kind in ("state-timeline", "status-history"):
        defaults["custom"] = {"lineWidth": 0, "fillOpacity": 80}
        options = {"showValue": "auto", "rowHeight": 0.9, **options, "legend": {**options["legend"], "showLegend": False}}
    elif kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "value_and_name", "graphMode": "none"}
    return {
        "type": kind,
        "title": title,
        "width": width,
        "description": description,
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {**options, **more},
        "targets": [
            {"refId": "ABCDEFGH"[i], "datasource": DATASOURCE, "editorMode": "code", "range": True, "expr": query(expr), "legendFormat": legend, **extra}
            for i, (expr, legend) in enumerate(targets)
        ],
    }


STACKED = {"stacking": {"mode": "normal", "group": "A"}}
SHARE = {"max": 1}
SECOND_IS_A_SHARE = {
    "matcher": {"id": "byFrameRefID", "options": "B"},
    "properties": [{"id": "unit", "value": "percentunit"}, {"id": "custom.axisPlacement", "value": "right"}, {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [6, 4]}}],
}


def thresholds(*steps):
    """Colours from values on: the first one from everywhere."""
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": [{"color": c, "value": v} for c, v in steps]}}


def mapped(values):
    options = {value: {"index": int(value), "text": text, "color": color} for value, (text, color) in values.items()}
    return {"mappings": [{"type": "value", "options": options}]}


def quantiles(metric, by, legend):
    grouped = f"sum by (le, {by}) (rate({metric}_bucket{{@}}[i]))"
    return [(f"histogram_quantile({q}, {grouped})", f"{legend} p{int(q * 100)}") for q in (0.5, 0.99)]


def per_second(metric, by, only="", scope="@"):
    selector = f"{scope}, {only}" if only else scope
    return f"sum by ({by}) (rate({metric}{{{selector}}}[i]))"


def share(metric, by, only):
    """Those of a counter that `only` selects, of all."""
    return f"{per_second(metric, by, only)} / {per_second(metric, by)}"


FALSE_POSITIVES = per_second("bloomguard_filter_false_positives_total", "keyspace")
TRUE_NEGATIVES = per_second("bloomguard_filter_checks_total", "keyspace", 'verdict="absent"')

OVERVIEW = {
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
            "Lookups by who answered", 12, "reqps",
            "filter: absent, at no cost. hot, redis: cached. backend: one call of the database. none: nobody could, a 503; see the error share.",
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
            "Only enforcing rejects; in every other state each lookup is answered, at the database's cost. /status says why, docs/operations.md what to do.",
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
            "Announces, deletes, invalidations", 8, "ops",
            "Keys by what was done with them. not_durable and full were answered 503: their rows must not be committed; Redis or the disk is the cause.",
            (per_second("bloomguard_announces_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
            (per_second("bloomguard_deletes_total", "keyspace"), "{{keyspace}} deleted"),
            (per_second("bloomguard_invalidated_keys_total", "keyspace"), "{{keyspace}} invalidated"),
        ),
    ],
}

FILTER = {
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
            "False-positive rate, estimated and observed", 12, "percentunit",
            "Estimated from the fill, and FP / (FP + TN) since the swap. Observed far over estimated: one absent key that passes is asked for again and again, or source.query lists rows that backend.query does not find.",
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
            "Filter in force, and keys that are held exactly (backend.kind = \"set\"), of one instance. A rebuild needs as much again: compare with the memory limit.",
            ("max by (keyspace) (bloomguard_filter_bytes{@})", "{{keyspace}} filter"),
            ("max by (keyspace) (bloomguard_set_bytes{@})", "{{keyspace}} set"),
        ),
    ],
    "Freshness": [
        panel(
            "Freshness lag", 8, "s",
            "Since the start of what the promise rests on: the last complete poll, else the last scan. Past max_staleness (polled, rebuilt) nothing is rejected: see rebuilds and polls.",
            ("max by (keyspace) (bloomguard_filter_freshness_lag_seconds{@})", "{{keyspace}}"),
        ),
        panel(
            "Age", 8, "s",
            "Since the filter was put in force. It should fall to zero as often as rebuild.schedule says.",
            ("max by (keyspace) (bloomguard_filter_age_seconds{@})", "{{keyspace}}"),
        ),
        panel(
            "Generation", 8, "none",
            "Number of the filter in force, for each instance. One that stays behind fails to build: see its log.",
            ("max by (keyspace, instance) (bloomguard_filter_generation{@})", "{{keyspace}} {{instance}}"),
        ),
    ],
    "Rebuilds": [
        panel(
            "Rebuilds", 8, "none",
            "Rebuilds that ended, by outcome. Any but swapped left the old filter in force; docs/operations.md says what to do about each.",
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
            "Turns to scan", 24, "none",
            "Scans of instances that share a Redis, by how their turn came. timed_out and unreachable may have run beside others.",
            ("sum by (keyspace, outcome) (increase(bloomguard_rebuild_turns_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Snapshots", 24, "none",
            "Filters that were written to disk, and starts from one, by outcome. Where none is written, a restart has to scan before it enforces.",
            ("sum by (keyspace, outcome) (increase(bloomguard_snapshots_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
    ],
    "Right or wrong": [
        panel(
            "False negatives", 8, "none",
            "Rows that were found although the filter had said absent: wrong answers while it enforces. Find the writer that does not announce, or the rows that source.query does not list; GET …/mismatches on the admin listener lists them.",
            ("sum by (keyspace) (increase(bloomguard_filter_false_negatives_total{@}[i]))", "{{keyspace}}"),
        ),
        panel(
            "Canary checks", 8, "none",
            "Absences that the filter answered and that were looked for at the backend as well. Every false_negative is a row that was answered 404.",
            ("sum by (keyspace, result) (increase(bloomguard_filter_canary_checks_total{@}[i]))", "{{keyspace}} {{result}}"),
        ),
        panel(
            "Distinct absent keys", 8, "short",
            "Distinct absent keys asked for in the last five minutes, at the busiest instance. Many more than usual are a flood of random keys: the filter takes it, see who sends it.",
            ("max by (keyspace) (bloomguard_filter_distinct_absent_keys{@})", "{{keyspace}}"),
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
            "Polls for new keys, by outcome. Without one that is completed within max_staleness the keyspace does not reject: the log has the database's words.",
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

DEPENDENCIES = {
    "Backend": [
        panel(
            "Backend calls", 8, "reqps",
            "Calls of guarded reads, by outcome. timeout, unavailable and invalid were answered 503: look at the database; for invalid, at backend.query.",
            (per_second("bloomguard_backend_requests_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Backend latency", 8, "s",
            "Median and 99th percentile of calls. Near backend.timeout, calls fail: index, or fewer at a time.",
            *quantiles("bloomguard_backend_request_duration_seconds", "keyspace", "{{keyspace}}"),
        ),
        panel(
            "Backend calls under way", 8, "none",
            "Of all instances together. At backend.max_concurrency lookups queue, and then are shed.",
            ("sum by (keyspace) (bloomguard_backend_inflight_requests{@})", "{{keyspace}}"),
        ),
        panel(
            "Shed", 8, "reqps",
            "Lookups answered 503 because the database was at its cap (backend.max_concurrency, max_queue). Now and then is what the cap is for; for long, the database is too slow or the cap too low.",
            (per_second("bloomguard_shed_total", "keyspace, reason"), "{{keyspace}} {{reason}}"),
        ),
        panel(
            "Coalesced lookups", 8, "reqps",
            "Lookups that waited for another's load of the same key. Many: a key that everybody asks for expired; cache.refresh_ahead helps.",
            (per_second("bloomguard_coalesced_lookups_total", "keyspace"), "{{keyspace}}"),
        ),
        panel(
            "Absence storms", 8, "none",
            "Times that most keys which pass the filter were absent at the backend: it is empty, lags, or is another database. Look at once; absences are not cached meanwhile.",
            ("sum by (keyspace) (increase(bloomguard_backend_absence_storms_total{@}[i]))", "{{keyspace}}"),
        ),
    ],
    "Redis": [
        panel(
            "Breakers", 8, "none",
            "1: the dependency answers. 0: it does not. Without Redis lookups go on to the database, and announces are answered 503. See the dependency, and the network between.",
            ('min by (dependency, instance) (bloomguard_breaker_state{%, state="closed"})', "{{dependency}} {{instance}}"), defaults=SHARE,
        ),
        panel(
            "Cache reads", 8, "reqps",
            "By tier and result. error: Redis failed or was too slow (redis.timeout); the lookup went on without it.",
            (per_second("bloomguard_cache_requests_total", "tier, result"), "{{tier}} {{result}}"), custom=STACKED,
        ),
        panel(
            "Hit share", 8, "percentunit",
            "Reads that found a value or an absence, by tier.",
            (share("bloomguard_cache_requests_total", "tier", 'result=~"hit|absent"'), "{{tier}}"),
            defaults=SHARE,
        ),
        panel(
            "Waits for another instance", 12, "reqps",
            "Lookups of a key that had expired and that another instance was loading already. filled is what leases are for; taken_over and timed_out tell of loads that took too long: see the backend's latency.",
            (per_second("bloomguard_cache_lease_waits_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Refreshes ahead", 12, "reqps",
            "Values that were loaded again before their expiry (cache.refresh_ahead). skipped: another instance was at it, or the database had no call to spare. error: the backend failed, the value stays.",
            (per_second("bloomguard_cache_refreshes_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
        ),
    ],
    "Delta log": [
        panel(
            "Lag behind the other instances", 12, "s",
            "Since the slowest instance last read the log to its end. Over redis.max_lag it stops rejecting: Redis or the network is slow, or the instance lacks CPU.",
            ("max by (keyspace) (bloomguard_delta_lag_seconds{@})", "{{keyspace}}"),
        ),
        panel(
            "Resyncs", 12, "none",
            "Times that announces of other instances may have been lost. Each costs a scan, and the keyspace does not reject until it is done. trimmed: raise redis.log.max_bytes. replaced: Redis was restarted.",
            ("sum by (keyspace, reason) (increase(bloomguard_delta_resyncs_total{@}[i]))", "{{keyspace}} {{reason}}"),
        ),
    ],
    "Container (metrics of the kubelet)": [
        panel(
            "CPU", 12, "none",
            "Cores that the container uses. At its limit everything is slow: raise it.",
            ('sum by (pod) (rate(container_cpu_usage_seconds_total{namespace=~"$namespace", pod=~"$pod", container="bloomguard"}[i]))', "{{pod}}"),
        ),
        panel(
            "Memory", 12, "bytes",
            "Working set, and its limit. A rebuild holds filters twice; one that would not fit is refused (outcome no_memory).",
            ('max by (pod) (container_memory_working_set_bytes{namespace=~"$namespace", pod=~"$pod", container="bloomguard"})', "{{pod}}"),
            ('max by (pod) (container_spec_memory_limit_bytes{namespace=~"$namespace", pod=~"$pod", container="bloomguard"})', "{{pod}} limit"),
        ),
    ],
}

DASHBOARDS = {
    "overview": ("What the filter and the caches keep away from the database, and whether the filter may still decide.", OVERVIEW),
    "filter": ("The filters: how full, how fresh, how right.", FILTER),
    "dependencies": ("What bloomguard leans on: the database, Redis, the other instances, its container.", DEPENDENCIES),
}


def variable(name, label, definition):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": definition,
        "query": {"query": definition, "refId": name},
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "includeAll": True,
        # Outside Kubernetes there is neither namespace nor pod: .* matches what is missing too.
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "regex": "",
    }


VARIABLES = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0, "includeAll": False, "multi": False, "refresh": 1, "regex": ""},
    variable("job", "Job", "label_values(bloomguard_build_info, job)"),
    variable("namespace", "Namespace", 'label_values(bloomguard_build_info{job=~"$job"}, namespace)'),
    variable("pod", "Pod", 'label_values(bloomguard_build_info{job=~"$job", namespace=~"$namespace"}, pod)'),
    variable("keyspace", "Keyspace", f"label_values(bloomguard_keyspace_state{{{PROCESS}}}, keyspace)"),
]
LINKS = [{"type": "dashboards", "title": "bloomguard", "tags": ["bloomguard"], "asDropdown": False, "includeVars": True, "keepTime": True, "icon": "external link", "targetBlank": False, "tooltip": "", "url": ""}]
HEIGHT = 8


def laid_out(rows):
    """Rows of panels, from left to right; a line is full at 24 columns."""
    panels, y = [], 0
    for title, row in rows.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        x, y = 0, y + 1
        for one in row:
            one = dict(one)
            width = one.pop("width")
            place = {"gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT}}
            panels.append({"id": len(panels) + 1, **one, "datasource": DATASOURCE, **place})
            x = (x + width) % 24
            y += 0 if x else HEIGHT
    return panels


def dashboard(name, description, rows):
    return {
        "uid": f"bloomguard-{name}",
        "title": f"bloomguard: {name}",
        "description": description,
        "tags": ["bloomguard"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": LINKS,
        "templating": {"list": VARIABLES},
        "panels": laid_out(rows),
    }


def main():
    root = Path(__file__).resolve().parent.parent
    for name, (description, rows) in DASHBOARDS.items():
        text = json.dumps(dashboard(name, description, rows), indent=2, ensure_ascii=False) + "\n"
        for place in (root / "dashboards", root / "helm/bloomguard/dashboards"):
            (place / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
