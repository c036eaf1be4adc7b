#!/usr/bin/env python3
"""Checks what Kubernetes is given: the chart, the kustomize component, the YAML of the README, the image's recipe, alerts and dashboards.

`make charts` runs it with the tools of tools.sh and a bloomguard that is built. A test's name is a sentence.
"""

import copy
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / "target/tools"
CHART = ROOT / "helm/bloomguard"
CI = sorted(CHART.glob("ci/*-values.yaml"))
BLOOMGUARD = Path(os.environ.get("BLOOMGUARD", ROOT / "target/debug/bloomguard"))
OLDEST = "1.29"
VERSIONS = [v for v in map(lambda v: ".".join(v.split(".")[:2]), kubernetes_validate.utils.all_versions()) if int(v.split(".")[1]) >= 29]
NEWEST = VERSIONS[-1]
# Kinds of the Prometheus operator; Kubernetes has no schema of them.
CUSTOM_KINDS = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
SECRETS = "/etc/bloomguard/secrets"


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)


def succeed(*command, **more):
    done = run(*command, **more)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


@functools.cache
def rendered(chart, *arguments, version=NEWEST):
    return documents(succeed(TOOLS / "helm", "template", "guard", chart, "--namespace", "shop", "--kube-version", f"{version}.0", *arguments))


def of_chart(values, version=NEWEST):
    return rendered(CHART, "-f", values, version=version)


@functools.cache
def of_parent_chart():
    """A chart of somebody's own that includes the named templates; its dependency is copied where `helm dependency build` puts it."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "application"
        shutil.copytree(ROOT / "deploy/helm/application", parent)
        shutil.copytree(CHART, parent / "charts/bloomguard")
        return rendered(parent)


@functools.cache
def of_kustomize():
    return documents(succeed(TOOLS / "kustomize", "build", ROOT / "deploy/kustomize/example"))


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


@functools.cache
def of_readme():
    shown = [block for block in blocks("README.md", "yaml") if "kind: Deployment" in block]
    assert len(shown) == 1, "the README shows one Deployment to copy"
    return documents(shown[0])


def renderings():
    """Everything that is rendered anywhere, by name and the version that it is for."""
    for values in CI:
        for version in (OLDEST, "1.30", NEWEST):
            yield f"{values.name} for {version}", of_chart(values, version), [v for v in VERSIONS if version in (OLDEST, v) or version == NEWEST and v != OLDEST]
    yield "the parent chart", of_parent_chart(), VERSIONS
    yield "kustomize", of_kustomize(), VERSIONS
    yield "the README", of_readme(), VERSIONS


def one(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pods(objects):
    for item in objects:
        if item["kind"] == "Pod":
            yield item["metadata"]["name"], item["spec"]
        elif "template" in item.get("spec", {}):
            yield item["metadata"]["name"], item["spec"]["template"]["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def guard_of(objects):
    """The container of bloomguard, wherever it is."""
    found = [c for item in objects if item["kind"] == "Deployment" for c in containers(item["spec"]["template"]["spec"]) if c["name"] == "bloomguard"]
    assert len(found) == 1, found
    return found[0]


def mebibytes(quantity):
    number, unit = re.fullmatch(r"([0-9.]+)(Mi|Gi)", quantity).groups()
    return float(number) * {"Mi": 1, "Gi": 1024}[unit]


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

    def test_names_are_unique_and_ports_fit(self):
        for name, objects, _ in renderings():
            names = [(o["kind"], o["metadata"]["name"]) for o in objects]
            self.assertEqual(len(names), len(set(names)), name)
            for _, pod in pods(objects):
                for port in (p for c in containers(pod) for p in c.get("ports", [])):
                    self.assertLessEqual(len(port["name"]), 15)

    def test_bloomguard_takes_the_configuration_it_is_given(self):
        checked = 0
        for name, objects, _ in renderings():
            for item in (o for o in objects if o["kind"] == "ConfigMap" and "bloomguard.toml" in o.get("data", {})):
                with tempfile.TemporaryDirectory() as folder:
                    text = item["data"]["bloomguard.toml"]
                    for path in re.findall(rf'"{SECRETS}/(.*?)"', text):
                        secret = Path(folder) / path
                        secret.parent.mkdir(parents=True, exist_ok=True)
                        secret.write_text("redis://redis:6379" if path.startswith("redis/") else "token" if "token" in path else "postgres://guard@database/app")
                    file = Path(folder) / "bloomguard.toml"
                    file.write_text(text.replace(SECRETS, folder))
                    done = run(BLOOMGUARD, "check-config", file)
                    self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}\n{text}")
                    checked += 1
        self.assertGreater(checked, 6)

    def test_every_secret_that_the_configuration_reads_is_mounted(self):
        for name, objects, _ in renderings():
            text = "".join(o.get("data", {}).get("bloomguard.toml", "") for o in objects if o["kind"] == "ConfigMap")
            for _, pod in pods(objects):
                guards = [c for c in containers(pod) if c["name"] == "bloomguard"]
                for path in re.findall(rf'"{SECRETS}/(.*?)"', text) if guards else []:
                    volume = next(v for v in pod["volumes"] if v["name"] == "bloomguard-secrets")
                    items = [i["path"] for s in volume["projected"]["sources"] for i in s["secret"]["items"]] if "projected" in volume else [path]
                    self.assertIn(path, items, name)

    def test_pods_pass_the_restricted_security_standard(self):
        seen = 0
        for name, objects, _ in renderings():
            for pod_name, pod in pods(objects):
                place, context = f"{name}: {pod_name}", pod.get("securityContext", {})
                self.assertFalse(pod.get("automountServiceAccountToken", True), place)
                for field in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertFalse(pod.get(field, False), place)
                for volume in pod.get("volumes", []):
                    kinds = set(volume) - {"name"}
                    self.assertLessEqual(kinds, {"configMap", "secret", "projected", "emptyDir", "persistentVolumeClaim"}, place)
                    self.assertTrue("emptyDir" not in volume or volume["emptyDir"].get("sizeLimit"), f"{place}: unbounded emptyDir")
                for container in containers(pod):
                    own = container.get("securityContext", {})
                    merged = {**{k: context[k] for k in ("runAsNonRoot", "runAsUser", "seccompProfile") if k in context}, **own}
                    self.assertIs(merged.get("runAsNonRoot"), True, place)
                    self.assertGreater(merged["runAsUser"], 0, place)
                    self.assertEqual(merged.get("seccompProfile"), {"type": "RuntimeDefault"}, place)
                    self.assertIs(own.get("allowPrivilegeEscalation"), False, place)
                    self.assertEqual(own.get("capabilities"), {"drop": ["ALL"]}, place)
                    self.assertIs(own.get("readOnlyRootFilesystem"), True, place)
                    seen += 1
                    if container["name"] == "bloomguard":
                        self.assertEqual((own["runAsUser"], own["runAsGroup"]), (65532, 65532), place)
        self.assertGreater(seen, 10)

    def test_probes_ask_the_telemetry_port_and_wait_for_nothing_else(self):
        for name, objects, _ in renderings():
            if not any(o["kind"] == "Deployment" for o in objects):
                continue
            guard = guard_of(objects)
            paths = {kind: guard[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
            self.assertEqual({p["port"] for p in paths.values()}, {"bg-telemetry"}, name)
            self.assertEqual([paths[k]["path"] for k in paths], ["/livez", "/livez", "/readyz"], name)

    def test_all_ways_to_a_sidecar_give_the_same_container(self):
        def essence(objects):
            container = copy.deepcopy(guard_of(objects))
            for own in ("image", "imagePullPolicy", "resources", "env"):
                container.pop(own, None)
            container["volumeMounts"] = sorted((m["name"], m["mountPath"]) for m in container["volumeMounts"])
            return container

        chart = essence(of_parent_chart())
        self.assertEqual(chart["restartPolicy"], "Always")
        self.assertEqual(essence(of_kustomize()), chart)
        self.assertEqual(essence(of_readme()), chart)

    def test_the_component_reaches_the_labelled_deployment_alone_and_follows_its_configuration(self):
        objects = of_kustomize()
        self.assertEqual(len(containers(one(objects, "Deployment", "mailer")["spec"]["template"]["spec"])), 1)
        shop = one(objects, "Deployment", "shop")["spec"]["template"]["spec"]
        name = next(v["configMap"]["name"] for v in shop["volumes"] if "configMap" in v)
        self.assertEqual(name, one(objects, "ConfigMap")["metadata"]["name"])
        self.assertRegex(name, "^bloomguard-[a-z0-9]{10}$")

    def test_a_changed_configuration_makes_other_pods(self):
        def checksum(*arguments):
            return one(rendered(CHART, *arguments), "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/bloomguard-config"]

        self.assertNotEqual(checksum(), checksum("--set", "config.log.level=debug"))
        self.assertEqual(checksum(), checksum("--set", "replicas=3"))

    def test_a_classic_sidecar_outlives_the_application_by_its_pause(self):
        settings = ("-f", CHART / "ci/sidecar-classic-values.yaml", "-s", "templates/configmap.yaml")
        self.assertTrue(rendered(CHART, *settings))
        # Rendered in a standalone Deployment too: the field exists since 1.30.
        demo = CHART / "ci/demo-values.yaml"
        self.assertIn("lifecycle", guard_of(of_chart(demo, "1.30")))
        self.assertNotIn("lifecycle", guard_of(of_chart(demo, OLDEST)))
        self.assertNotIn("lifecycle", guard_of(of_parent_chart()))

    def test_memory_holds_each_filter_twice(self):
        def rate(load):
            """As src/filter/sizing.rs: Poisson many keys in a block of eight words."""
            total, logarithm = 0.0, -load
            for keys in range(1, int(load + 12 * math.sqrt(load) + 30)):
                logarithm += math.log(load / keys)
                total += math.exp(logarithm) * (1 - (63 / 64) ** keys) ** 8
            return total

        def bits_per_key(asked):
            low, high = 1e-9, 1e4
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if rate(middle) <= asked else (low, middle)
            return 512 / low

        keyspace = "config.keyspaces.users"
        for asked in (0.05, 0.01, 0.003, 0.001, 0.0001, 0.00003):
            for keys in (1_000_000, 100_000_000):
                values = {"expected_keys": keys, "false_positive_rate": asked}
                settings = ("--set-json", f"{keyspace}.filter={json.dumps(values)}", "--set", "config.redis.url=redis://r")
                resources = guard_of(rendered(CHART, *settings))["resources"]
                given = mebibytes(resources["requests"]["memory"])
                self.assertEqual(resources["limits"]["memory"], resources["requests"]["memory"])
                # 32 MiB that bloomguard reckons with for itself, and the in-process cache.
                needed = 2 * keys * 1.3 * bits_per_key(asked) / 8 / 2**20 + 32 + 64
                self.assertGreater(given, needed, (asked, keys))
                self.assertLess(given, needed * 1.6 + 100, (asked, keys))

    def test_the_sizes_of_the_page_are_those_of_the_chart(self):
        rows = re.findall(r"^\| ([0-9,]+) \| ([0-9.]+) % \| .* \| (\d+Mi) \|$", (ROOT / "docs/kubernetes.md").read_text(), re.M)
        self.assertEqual(len(rows), 5)
        for keys, rate, memory in rows:
            values = {"expected_keys": int(keys.replace(",", "")), "false_positive_rate": float(rate) / 100}
            settings = ("--set-json", f"config.keyspaces.users.filter={json.dumps(values)}", "--set", "config.redis.url=redis://r")
            self.assertEqual(guard_of(rendered(CHART, *settings))["resources"]["limits"]["memory"], memory, keys)

    def test_what_can_not_keep_its_promise_is_refused(self):
        announced = "config.keyspaces.users.freshness=announced"
        for values, message in [
            (announced, "with 2 instances and no config.redis"),
            (announced + ",autoscaling.enabled=true,replicas=1", "with 6 instances and no config.redis"),
            (announced + ",mode=sidecar", "with 2 instances and no config.redis"),
            (announced + ",replicas=1", "needs dataVolume.existingClaim"),
            (announced + ",config.redis.url=redis://r,config.keyspaces.users.backend.kind=set", "whose instances tell each other nothing"),
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

    def test_values_reach_the_file_as_they_were_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            values = Path(folder) / "values.yaml"
            keyspace = {"filter": {"expected_keys": 1_000_000_000, "false_positive_rate": 0.00001}, "reveal_keys": True}
            keyspace["backend"] = {"query": 'SELECT "a\\b", \'é\' FROM t WHERE x >= 1 AND k = $1', "headers": {"X-A b": "1"}, "absent_status": [404, 410]}
            values.write_text(json.dumps({"config": {"keyspaces": {"users": keyspace}}}))
            import tomllib

            read = tomllib.loads(one(rendered(CHART, "-f", values), "ConfigMap")["data"]["bloomguard.toml"])
        self.assertEqual(read["keyspaces"]["users"], keyspace)
        self.assertIs(type(read["keyspaces"]["users"]["filter"]["expected_keys"]), int)

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

    def test_each_alert_has_a_section_in_the_operations_page(self):
        page = (ROOT / "docs/operations.md").read_text()
        for rule in self.alerts():
            self.assertTrue(f"\n### {rule['alert']}\n" in page, f"no section {rule['alert']}")
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/operations.md#{rule['alert'].lower()}")

    def test_dashboards_are_as_generated_and_the_chart_carries_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for place in ("dashboards", "helm/bloomguard/dashboards"):
                (Path(folder) / place).mkdir(parents=True)
            shutil.copy(ROOT / "dashboards/generate.py", Path(folder) / "dashboards")
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


if __name__ == "__main__":
    unittest.main()
