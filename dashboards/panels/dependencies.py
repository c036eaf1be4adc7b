"""Dependencies: the database, Redis, the other instances, the container."""

from .vocabulary import SHARE, STACKED, panel, per_second, quantiles, share

ROWS = {
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
            "Lookups for which the database was not asked: at its cap (backend.max_concurrency, max_queue), or breaker_open, because it gives no answer. Now and then is what the cap is for; for long, the database is too slow or the cap too low.",
            (per_second("bloomguard_shed_total", "keyspace, reason"), "{{keyspace}} {{reason}}"),
        ),
        panel(
            "Coalesced lookups", 8, "reqps",
            "Lookups that waited for another's load of the same key. Many: a popular key expired; cache.refresh_ahead helps.",
            (per_second("bloomguard_coalesced_lookups_total", "keyspace"), "{{keyspace}}"),
        ),
        panel(
            "Absence storms", 8, "none",
            "Times that rows which the backend had were lost: it is empty, lags, or is another database. Act at once; absences are not cached meanwhile.",
            ("sum by (keyspace) (increase(bloomguard_backend_absence_storms_total{@}[i]))", "{{keyspace}}"),
        ),
        panel(
            "Expired values served", 24, "reqps",
            "Lookups answered with an expired value (cache.stale_if_error) because the database gave no answer or was at its cap: see why on the panels above.",
            (per_second("bloomguard_stale_answers_total", "keyspace"), "{{keyspace}}"),
        ),
    ],
    "Redis": [
        panel(
            "Breakers", 8, "none",
            "1: the dependency answers. 0: it does not. Without Redis lookups go to the database and announces are 503; without the backend, lookups that neither filter nor caches answer are 503. Check the dependency and the network.",
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
            "Lookups of an expired key that another instance was already loading. filled is what leases are for; taken_over and timed_out are loads that took too long: see the backend's latency.",
            (per_second("bloomguard_cache_lease_waits_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
        ),
        panel(
            "Refreshes ahead", 12, "reqps",
            "Values that were reloaded before their expiry (cache.refresh_ahead). skipped: another instance was doing it, or no backend call was free. error: the backend failed, the value stays.",
            (per_second("bloomguard_cache_refreshes_total", "keyspace, outcome"), "{{keyspace}} {{outcome}}"),
        ),
    ],
    "Delta log": [
        panel(
            "Lag behind the other instances", 12, "s",
            "Since the slowest instance last read the log to its end. Over redis.max_lag a keyspace with announces stops answering 404 from the filter, without announces, changed rows leave its cache late: Redis or the network is slow, or the instance lacks CPU.",
            ("max by (keyspace) (bloomguard_delta_lag_seconds{@})", "{{keyspace}}"),
        ),
        panel(
            "Resyncs", 6, "none",
            "Times that announces of other instances may have been lost. Each costs a scan; the filter answers no 404 until it is done. trimmed: raise redis.log.max_bytes. replaced: Redis was restarted, and an instance was missing that had announced.",
            ("sum by (keyspace, reason) (increase(bloomguard_delta_resyncs_total{@}[i]))", "{{keyspace}} {{reason}}"),
        ),
        panel(
            "Roll calls", 6, "none",
            "Times that Redis came back with another delta log. complete: every instance has announced again, no scan. failed: one was missing, late or configured otherwise, and a scan followed.",
            ("sum by (keyspace, outcome) (increase(bloomguard_delta_roll_calls_total{@}[i]))", "{{keyspace}} {{outcome}}"),
        ),
    ],
    "Process": [
        panel(
            "Open connections", 12, "none",
            "Of all instances, by listener, and the limit. A full listener closes idle connections: do clients keep theirs open, and how many are they?",
            ("sum by (listener) (bloomguard_http_open_connections{%})", "{{listener}}"),
            ("sum by (listener) (bloomguard_http_max_connections{%})", "{{listener}} at most"),
        ),
        panel(
            "Connections closed on clients", 12, "ops",
            "evicted: idle, and a new connection needed the place: raise server.max_connections, or the limit of open files. flood: HTTP/2 control frames without end.",
            (per_second("bloomguard_http_closed_connections_total", "listener, reason", scope="%"), "{{listener}} {{reason}}"),
        ),
        panel(
            "Bytes of requests and responses", 8, "bytes",
            "Bytes that request bodies, batches and unread responses hold, by instance. At the limit requests are answered 503 overloaded, batches at three quarters of it.",
            ("max by (instance) (bloomguard_buffered_bytes{%})", "{{instance}}"),
            ("max by (instance) (bloomguard_buffered_bytes_limit{%})", "{{instance}} limit"),
        ),
        panel(
            "Refused or cut for their bytes", 8, "reqps",
            "request, values and response: no room under server.max_buffered_bytes. slow_body: a body that came too slowly. slow_client: a response that was not read within server.send_timeout.",
            ("sum by (reason) (rate(bloomguard_buffer_refusals_total{%}[i]))", "{{reason}}"),
        ),
        panel(
            "CPU of the process", 8, "none",
            "Processors that each instance keeps busy. A scan takes one or two for its time; lookups alone that do are many, see Requests.",
            ("sum by (instance) (rate(process_cpu_seconds_total{%}[i]))", "{{instance}}"),
        ),
        panel(
            "Memory of the process", 12, "bytes",
            "What each instance takes. A rebuild holds filters twice.",
            ("max by (instance) (process_resident_memory_bytes{%})", "{{instance}}"),
        ),
        panel(
            "Open files", 12, "none",
            "Sockets and files, and their limit. At the limit no connection is accepted: raise the limit of open files of the container or service.",
            ("max by (instance) (process_open_fds{%})", "{{instance}}"),
            ("min by (instance) (process_max_fds{%})", "{{instance}} limit"),
        ),
        panel(
            "Threads", 12, "none",
            "server.workers, and those that scan and read files, which come and go. Ever more: a file system or a database hangs.",
            ("max by (instance) (process_threads{%})", "{{instance}}"),
        ),
        panel(
            "Uptime", 12, "s",
            "Since each instance's start. One that falls to zero again and again is killed or ends: look for its last log lines, and for OOMKilled.",
            ("time() - max by (instance) (process_start_time_seconds{%})", "{{instance}}"),
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
