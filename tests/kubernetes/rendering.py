"""What there is to check: every rendering of the chart, the component and docs/kubernetes.md, as objects.

`make charts` runs the checks with the tools of tools.sh and a bloomguard that is built. A test's name is a sentence.
"""

import functools
import os
import re
import shutil
import subprocess
import tempfile
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
def of_parent_chart(*arguments):
    """A chart of somebody's own that includes the named templates; its dependency is copied where `helm dependency build` puts it."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "application"
        shutil.copytree(ROOT / "deploy/helm/application", parent)
        shutil.copytree(CHART, parent / "charts/bloomguard")
        return rendered(parent, *arguments)


@functools.cache
def of_kustomize():
    return documents(succeed(TOOLS / "kustomize", "build", ROOT / "deploy/kustomize/example"))


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


@functools.cache
def of_page():
    shown = [block for block in blocks("docs/kubernetes.md", "yaml") if "kind: Deployment" in block]
    assert len(shown) == 1, "the page shows one Deployment to copy"
    return documents(shown[0])


def renderings():
    """Everything that is rendered anywhere, by name and the version that it is for."""
    for values in CI:
        for version in (OLDEST, "1.30", NEWEST):
            yield f"{values.name} for {version}", of_chart(values, version), [v for v in VERSIONS if version in (OLDEST, v) or version == NEWEST and v != OLDEST]
    yield "the parent chart", of_parent_chart(), VERSIONS
    yield "kustomize", of_kustomize(), VERSIONS
    yield "docs/kubernetes.md", of_page(), VERSIONS


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
