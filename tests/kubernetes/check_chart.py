"""The chart: what it renders fits Kubernetes, what it should refuse it refuses, what it has is documented."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

from rendering import CHART, CI, CUSTOM_KINDS, TOOLS, one, rendered, renderings, run, succeed


def leaves(values, path=""):
    """Key paths of the values; a map that is empty, or that a user fills, is a leaf."""
    for key, value in values.items():
        here = f"{path}{key}"
        if isinstance(value, dict) and value and not key.endswith(("SecurityContext", "Probe")) and here != "monitoring.dashboards.labels":
            yield from leaves(value, here + ".")
        else:
            yield here, value


class Chart(unittest.TestCase):
    def test_lint_finds_nothing_in_any_mode(self):
        for values in CI:
            succeed(TOOLS / "helm", "lint", "--strict", CHART, "-f", values)

    def test_every_object_fits_the_schemas_of_all_supported_versions(self):
        seen = set()
        for name, objects, versions in renderings():
            for item in objects:
                for version in versions:
                    if item["kind"] in CUSTOM_KINDS or (key := (version, json.dumps(item, sort_keys=True))) in seen:
                        continue
                    seen.add(key)
                    try:
                        kubernetes_validate.validate(item, version, strict=True)
                    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                        self.fail(f"{name}: {item['kind']} {item['metadata']['name']}: Kubernetes {version}: {error.message}")
        self.assertGreater(len(seen), 100)

    def test_what_can_not_keep_its_promise_is_refused(self):
        announced = "config.keyspaces.users.freshness=announced"
        for values, message in [
            (announced, "with 2 instances and no config.redis"),
            (announced + ",autoscaling.enabled=true,replicas=1", "with 6 instances and no config.redis"),
            (announced + ",mode=sidecar", "with 2 instances and no config.redis"),
            (announced + ",replicas=1", "needs dataVolume.existingClaim"),
            ("dataVolume.existingClaim=data", "each process needs a data directory of its own"),
            ("config.server.listen=0.0.0.0:1", "config.server.listen is the chart's"),
            ("mode=sidecar,monitoring.serviceMonitor.enabled=true", "enable monitoring.podMonitor"),
            ("mode=sidecar,monitoring.podMonitor.enabled=true", "needs sidecar.podLabels"),
            ("config.keyspaces.users.cache.hot_capacity=64MB2", "is no size"),
            ("replica=3", "replica"),
            ("image.repo=x", "repo"),
            ("monitoring.dashboards.label.a=b", "label"),
            ("config.keyspaces.Users.key=text", "Users"),
            ("config.keyspace.users.key=text", "keyspace"),
            ("replicas=-1", "minimum"),
            ("mode=daemonset", "standalone"),
            ("ports.data=80", "/ports/data"),
        ]:
            done = run(TOOLS / "helm", "template", "guard", CHART, "--set", values)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(message, done.stderr, values)
        claimed = announced + ",replicas=1,dataVolume.existingClaim=data"
        self.assertEqual(one(rendered(CHART, "--set", claimed), "Deployment")["spec"]["strategy"], {"type": "Recreate"})
        self.assertTrue(rendered(CHART, "--set", announced + ",config.redis.url=redis://r"))

    def test_notes_say_what_to_do_next(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = Path(folder) / "bloomguard"
            shutil.copytree(CHART, chart)
            notes = chart / "templates/NOTES.txt"
            (chart / "templates/_notes.tpl").write_text('{{- define "notes" -}}' + notes.read_text() + "{{- end -}}")
            notes.unlink()
            (chart / "templates/shown.yaml").write_text('kind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | toJson }}\n')
            said = {v.name: one(rendered(chart, "-f", v), "Notes")["text"] for v in CI}
        for name, text in said.items():
            self.assertIn("Memory of each container", text, name)
            self.assertNotIn("<no value>", text, name)
        self.assertIn("/v1/keys/demo/alice", said["demo-values.yaml"])
        self.assertIn("asks for no token", said["single-values.yaml"])
        self.assertNotIn("asks for no token", said["standalone-values.yaml"])
        self.assertIn('include "bloomguard.sidecar.container"', said["sidecar-values.yaml"])
        self.assertIn("initContainers", said["sidecar-values.yaml"])
        self.assertNotIn("initContainers", said["sidecar-classic-values.yaml"])

    def test_every_value_is_in_the_readme_with_its_default_and_in_the_schema(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        schema = json.loads((CHART / "values.schema.json").read_text())
        rows = re.findall(r"^\| `([^`]+)` \| `([^`]*)` \|", (CHART / "README.md").read_text(), re.M)
        listed = {path: yaml.safe_load(default) for path, default in rows}
        self.assertEqual(listed, dict(leaves(values)))
        for path in listed:
            level = schema
            for key in path.split("."):
                self.assertFalse(level["additionalProperties"], path)
                level = level["properties"][key]

    def test_every_value_is_used_by_a_template(self):
        text = "".join(p.read_text() for p in (CHART / "templates").rglob("*") if p.is_file())
        for path, _ in leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
            # The last word of a path that is handed on whole, such as resources.requests.cpu, need not appear.
            self.assertTrue(re.search(rf"\.({'|'.join(path.split('.')[-2:])})\b", text), path)
