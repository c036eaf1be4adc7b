"""What panels are made of.

Queries are PromQL with three abbreviations: {@} selects by job, namespace, pod and keyspace, {%} without the keyspace (for what has none),
and [i] is the rate interval. A panel's description says what it shows, and what to do when it is bad.
"""

PROCESS = 'job=~"$job", namespace=~"$namespace", pod=~"$pod"'
KEYSPACE = PROCESS + ', keyspace=~"$keyspace"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


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
