"""Alerts, dashboards, and the recipe of the image."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

from rendering import CHART, ROOT, TOOLS, of_chart, one, succeed


class Monitoring(unittest.TestCase):
    ALERTS = CHART / "files/alerts.yaml"

    def alerts(self):
        return [rule for group in yaml.safe_load(self.ALERTS.read_text())["groups"] for rule in group["rules"]]

    def test_rules_are_sound_and_the_chart_gives_the_same_ones(self):
        succeed("promtool", "check", "rules", self.ALERTS)
        rule = one(of_chart(CHART / "ci/standalone-values.yaml"), "PrometheusRule")
        base, given = "https://git.example.com/bloomguard/blob/main/", rule["spec"]["groups"][0]["rules"]
        for rule, own in zip(given, self.alerts(), strict=True):
            own["annotations"]["runbook_url"] = base + own["annotations"]["runbook_url"]
            self.assertEqual(rule, own)

    def test_each_alert_fires_on_its_series_and_is_silent_on_others(self):
        file = ROOT / "tests/kubernetes/alerts.yaml"
        succeed("promtool", "test", "rules", file)
        fires, silent = set(), set()
        for case in (case for test in yaml.safe_load(file.read_text())["tests"] for case in test["alert_rule_test"]):
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
        names = {rule["alert"] for rule in self.alerts()}
        self.assertEqual((fires, silent), (names, names))

    def test_each_alert_has_a_section_in_the_runbook(self):
        page = (ROOT / "docs/runbook.md").read_text()
        for rule in self.alerts():
            self.assertTrue(f"\n### {rule['alert']}\n" in page, f"no section {rule['alert']}")
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/runbook.md#{rule['alert'].lower()}")

    def test_dashboards_are_as_generated_and_the_chart_carries_them(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "dashboards", Path(folder) / "dashboards", ignore=shutil.ignore_patterns("*.json"))
            (Path(folder) / "helm/bloomguard/dashboards").mkdir(parents=True)
            succeed(sys.executable, Path(folder) / "dashboards/generate.py")
            for place in ("dashboards", "helm/bloomguard/dashboards"):
                for made in (Path(folder) / place).glob("*.json"):
                    self.assertEqual((ROOT / place / made.name).read_text(), made.read_text(), f"run dashboards/generate.py: {place}/{made.name}")
        maps = [o for o in of_chart(CHART / "ci/standalone-values.yaml") if o["metadata"].get("labels", {}).get("grafana_dashboard")]
        titles = [json.loads(text)["title"] for item in maps for text in item["data"].values()]
        self.assertEqual(titles, ["bloomguard: dependencies", "bloomguard: filter", "bloomguard: overview"])


class Image(unittest.TestCase):
    def test_hadolint_finds_nothing_in_the_dockerfile(self):
        succeed(TOOLS / "python/bin/hadolint", "--failure-threshold", "info", ROOT / "Dockerfile")
