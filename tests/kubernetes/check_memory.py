"""The memory that the chart computes."""

import json
import math
import re
import unittest

from rendering import CHART, ROOT, guard_of, of_kustomize, of_page, rendered


def mebibytes(quantity):
    number, unit = re.fullmatch(r"([0-9.]+)(Mi|Gi)", quantity).groups()
    return float(number) * {"Mi": 1, "Gi": 1024}[unit]


class Memory(unittest.TestCase):
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
                # 32 MiB that bloomguard reckons with for itself, the in-process cache, and announces.
                needed = 2 * keys * 1.3 * bits_per_key(asked) / 8 / 2**20 + 32 + 64 + 32
                self.assertGreater(given, needed, (asked, keys))
                self.assertLess(given, needed * 1.6 + 100, (asked, keys))

    def test_memory_holds_what_requests_and_responses_may(self):
        def computed(*settings):
            return mebibytes(guard_of(rendered(CHART, *settings))["resources"]["limits"]["memory"])

        default = computed()
        self.assertEqual(computed("--set-json", 'config.server={"max_buffered_bytes":"64MiB"}'), default)
        for settings in ({"max_buffered_bytes": "164MiB"}, {"max_buffered_bytes": 164 * 2**20}, {"max_body_bytes": "41MiB"}):
            self.assertAlmostEqual(computed("--set-json", f"config.server={json.dumps(settings)}"), default + 110, delta=1)

    def test_memory_holds_the_announces_that_the_configuration_allows(self):
        def given(*more):
            return mebibytes(guard_of(rendered(CHART, "--set", "config.redis.url=redis://r", *more))["resources"]["limits"]["memory"])

        more = given("--set", "config.server.max_announce_bytes=132MiB") - given()
        self.assertAlmostEqual(more, 110, delta=1)

    def test_the_sizes_of_the_page_are_those_of_the_chart(self):
        rows = re.findall(r"^\| ([0-9,]+) \| ([0-9.]+) % \| .* \| (\d+Mi) \|$", (ROOT / "docs/kubernetes.md").read_text(), re.M)
        self.assertEqual(len(rows), 5)
        for keys, rate, memory in rows:
            values = {"expected_keys": int(keys.replace(",", "")), "false_positive_rate": float(rate) / 100}
            settings = ("--set-json", f"config.keyspaces.users.filter={json.dumps(values)}", "--set", "config.redis.url=redis://r")
            self.assertEqual(guard_of(rendered(CHART, *settings))["resources"]["limits"]["memory"], memory, keys)

    def test_the_limits_to_copy_are_enough_for_their_configuration(self):
        computed = guard_of(rendered(CHART, "--set-json", 'config.keyspaces.users.filter={"expected_keys": 1000000}'))
        needed = mebibytes(computed["resources"]["limits"]["memory"])
        for copied in (of_kustomize(), of_page()):
            self.assertGreaterEqual(mebibytes(guard_of(copied)["resources"]["limits"]["memory"]), needed)
