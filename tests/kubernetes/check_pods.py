"""Pods, however they are made: restricted, probed, and with the same sidecar."""

import copy
import re
import unittest

from rendering import CHART, OLDEST, SECRETS, containers, guard_of, of_chart, of_kustomize, of_parent_chart, of_page, one, pods, rendered, renderings


class Pods(unittest.TestCase):
    def test_names_are_unique_and_ports_fit(self):
        for name, objects, _ in renderings():
            names = [(o["kind"], o["metadata"]["name"]) for o in objects]
            self.assertEqual(len(names), len(set(names)), name)
            for _, pod in pods(objects):
                for port in (p for c in containers(pod) for p in c.get("ports", [])):
                    self.assertLessEqual(len(port["name"]), 15)

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

    def test_a_pod_that_waits_for_its_filter_has_the_time_that_was_set(self):
        probe = guard_of(rendered(CHART, "--set", "waitForFilter=true,waitForFilterSeconds=90,startupProbe.periodSeconds=4"))["startupProbe"]
        self.assertEqual(probe, {"httpGet": {"path": "/startupz", "port": "bg-telemetry"}, "periodSeconds": 4, "failureThreshold": 23})

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
        self.assertEqual(essence(of_page()), chart)

    def test_the_component_reaches_the_labelled_deployment_alone_and_follows_its_configuration(self):
        objects = of_kustomize()
        self.assertEqual(len(containers(one(objects, "Deployment", "mailer")["spec"]["template"]["spec"])), 1)
        shop = one(objects, "Deployment", "shop")["spec"]["template"]["spec"]
        name = next(v["configMap"]["name"] for v in shop["volumes"] if "configMap" in v)
        self.assertEqual(name, one(objects, "ConfigMap")["metadata"]["name"])
        self.assertRegex(name, "^bloomguard-[a-z0-9]{10}$")

    def test_a_changed_configuration_makes_other_pods_where_it_needs_a_restart(self):
        def checksum(settings="", roll="auto"):
            users = "config.keyspaces.users.source.query=SELECT"
            values = ",".join(filter(None, [users, f"rollOnConfigChange={roll}", settings]))
            return one(rendered(CHART, "--set", values), "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/bloomguard-config"]

        live = ["enforcement=shadow", "enforce_percent=5", "reveal_keys=true", "cache.ttl=5m", "rebuild.schedule=0 * * * *", "canary.hold=1m"]
        for setting in ["config.log.level=debug", *(f"config.keyspaces.users.{setting}" for setting in live)]:
            self.assertEqual(checksum(), checksum(setting), setting)
            self.assertNotEqual(checksum(roll="always"), checksum(setting, "always"), setting)
        fixed = ["max_staleness=1h", "cache.hot_capacity=1MiB", "cache.refresh_ahead=0.1", "cache.stale_if_error=10m", "source.kind=file", "filter.headroom=2"]
        for setting in ["config.log.format=text", "config.server.workers=3", "files.a=b", "ports.data=4100", "drainTimeoutSeconds=1"] + [f"config.keyspaces.users.{s}" for s in fixed]:
            self.assertNotEqual(checksum(), checksum(setting), setting)
            self.assertEqual(checksum(roll="never"), checksum(setting, "never"), setting)
        self.assertEqual(checksum(), checksum("replicas=3"))

    def test_who_is_stopped_with_others_serves_on_for_a_while(self):
        pause = {"preStop": {"sleep": {"seconds": 5}}}
        native, classic = guard_of(of_parent_chart()), guard_of(of_parent_chart("--set", "bloomguard.sidecar.native=false"))
        self.assertNotIn("lifecycle", native)
        self.assertEqual(classic["lifecycle"], pause)
        self.assertNotIn("restartPolicy", classic)
        # The field exists since 1.30.
        demo = CHART / "ci/demo-values.yaml"
        self.assertEqual(guard_of(of_chart(demo, "1.30"))["lifecycle"], pause)
        self.assertNotIn("lifecycle", guard_of(of_chart(demo, OLDEST)))
