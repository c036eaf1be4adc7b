"""The configuration that pods are given: bloomguard takes it, and serves with it."""

import http.client
import json
import os
import re
import subprocess
import tempfile
import threading
import tomllib
import unittest
from pathlib import Path

from rendering import BLOOMGUARD, CHART, SECRETS, of_chart, one, rendered, renderings, run


class Configuration(unittest.TestCase):
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

    def test_a_plain_install_answers(self):
        data = one(of_chart(CHART / "ci/demo-values.yaml"), "ConfigMap")["data"]
        with tempfile.TemporaryDirectory() as folder:
            for name, text in data.items():
                (Path(folder) / name).write_text(text.replace("/etc/bloomguard/config", folder).replace("/var/lib/bloomguard", folder + "/data"))
            free = {f"BLOOMGUARD__SERVER__{name}": "127.0.0.1:0" for name in ("LISTEN", "TELEMETRY_LISTEN", "ADMIN_LISTEN")}
            command = [BLOOMGUARD, "serve", "--config", Path(folder) / "bloomguard.toml"]
            with subprocess.Popen(command, env={**os.environ, **free}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                # Whatever is waited for in vain ends with the process.
                watchdog = threading.Timer(120, process.kill)
                watchdog.start()
                try:
                    log = (json.loads(line) for line in process.stderr)
                    address = next(line["data"] for line in log if line["message"] == "serving")
                    next(line for line in log if line["message"] == "rebuild finished: new filter active")
                    told = [self.ask(address, f"/v1/keys/demo/{key}") for key in ("alice", *range(10))]
                finally:
                    watchdog.cancel()
                    process.kill()
        self.assertEqual(told[0], (200, "backend"))
        self.assertEqual({status for status, _ in told[1:]}, {404})
        # One in a thousand passes the filter.
        self.assertIn((404, "filter"), told[1:])

    def ask(self, address, path):
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        connection.close()
        return answer.status, answer.getheader("Bloomguard-Source")

    def test_values_reach_the_file_as_they_were_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            values = Path(folder) / "values.yaml"
            keyspace = {"filter": {"expected_keys": 1_000_000_000, "false_positive_rate": 0.00001}, "reveal_keys": True}
            keyspace["backend"] = {"query": 'SELECT "a\\b", \'é\' FROM t WHERE x >= 1 AND k = $1', "headers": {"X-A b": "1"}, "absent_status": [404, 410]}
            values.write_text(json.dumps({"config": {"keyspaces": {"users": keyspace}}}))
            read = tomllib.loads(one(rendered(CHART, "-f", values), "ConfigMap")["data"]["bloomguard.toml"])
        self.assertEqual(read["keyspaces"]["users"], keyspace)
        self.assertIs(type(read["keyspaces"]["users"]["filter"]["expected_keys"]), int)
