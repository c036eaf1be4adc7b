#!/usr/bin/env python3
"""Draws absent-keys.svg from the table "In front of PostgreSQL" of docs/benchmarks.md. Prints it with --stdout."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROWS, WIDTH, LEFT, BAR = "1000000", 640, 210, 270


def measured():
    section = (HERE.parent / "benchmarks.md").read_text().split("## In front of PostgreSQL")[1].split("\n## ")[0]
    found = dict(re.findall(rf"^\| {ROWS} \| (on|off) \| (\d+) \| [\d.]+ \| ", section, re.M))
    latency = dict(re.findall(rf"^\| {ROWS} \| (on|off) \| \d+ \| [\d.]+ \| ([\d.]+) \|", section, re.M))
    return [(guard, int(found[guard]), float(latency[guard])) for guard in ("off", "on")]


def svg():
    bars = measured()
    most = max(requests for _, requests, _ in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="130" viewBox="0 0 {WIDTH} 130" '
        'font-family="sans-serif" font-size="13" role="img">',
        "<title>Lookups of absent keys a second in front of PostgreSQL, with and without bloomguard</title>",
        f'<rect width="{WIDTH}" height="130" fill="#ffffff"/>',
        '<text x="12" y="22" font-weight="bold">'
        f"Lookups of absent keys a second, {int(ROWS):,} rows in PostgreSQL</text>",
    ]
    for place, (guard, requests, p99) in enumerate(bars):
        top, name = 38 + 34 * place, {"off": "every lookup asks the database", "on": "with bloomguard"}[guard]
        colour, length = {"off": "#b0b7c3", "on": "#2f7d5b"}[guard], round(BAR * requests / most)
        lines += [
            f'<text x="{LEFT - 10}" y="{top + 17}" text-anchor="end">{name}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{length}" height="24" fill="{colour}"/>',
            f'<text x="{LEFT + length + 8}" y="{top + 17}">{requests:,} · P99 {p99} ms</text>',
        ]
    command = "BLOOMGUARD_BENCH_PARTS=database make bench-http"
    lines += [f'<text x="12" y="120" font-size="11" fill="#555555">{command}, two shared cores</text>', "</svg>"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--stdout"]:
        sys.stdout.write(svg())
    else:
        (HERE / "absent-keys.svg").write_text(svg())
