#!/usr/bin/env python3
"""Writes the dashboards from the panels in panels/: here, and in the chart, which can only carry files of its own.

    python3 dashboards/generate.py
"""

import json
from pathlib import Path

from panels import dependencies, filter, overview
from panels.vocabulary import DATASOURCE, PROCESS

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
    for page in (overview, filter, dependencies):
        name = page.__name__.rsplit(".", 1)[-1]
        text = json.dumps(dashboard(name, page.__doc__, page.ROWS), indent=2, ensure_ascii=False) + "\n"
        for place in (root / "dashboards", root / "helm/bloomguard/dashboards"):
            (place / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
