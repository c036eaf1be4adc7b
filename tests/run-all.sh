#!/usr/bin/env bash
# All that CI checks: one line before each step says what it proves.
set -euo pipefail
cd "$(dirname "$0")/.."

began=$SECONDS
step=

finish() {
    local status=$?
    if [ "$status" -ne 0 ]; then
        echo "ci: FAILED in step '$step' after $((SECONDS - began)) s" >&2
    else
        echo "ci: every step passed in $((SECONDS - began)) s"
    fi
}
trap finish EXIT

prove() {
    step=$1
    echo "ci: $step: $2"
    make --no-print-directory "$step"
}

prove deps "the servers that the tests start are installed"
prove fmt "the source is formatted"
prove clippy "no lint warns"
prove audit "licences and sources of dependencies are allowed, no advisory is open"
prove unit "every test of the workspace passes, on real servers"
prove charts "chart, manifests, alerts and dashboards render and fit together"
prove doc "examples in the documentation run, and it has no warnings"
