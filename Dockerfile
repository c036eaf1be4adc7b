# syntax=docker/dockerfile:1
# docker buildx build --platform linux/amd64,linux/arm64 -t registry.example.com/bloomguard:0.1.0 --push .
#
# The compiler runs on the machine's own architecture and crosses to the target's, so that nothing is emulated.
FROM --platform=$BUILDPLATFORM rust:1.94-bookworm AS build
ARG TARGETARCH
WORKDIR /build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# C for the target, for the libraries that are bundled (SQLite, zstd, ring). Versions are those of the base image's Debian.
# hadolint ignore=DL3008
RUN case "$TARGETARCH" in \
      amd64) triple=x86_64 ;; \
      arm64) triple=aarch64 ;; \
      *) echo "no target for $TARGETARCH" >&2; exit 1 ;; \
    esac; \
    rustup target add "$triple-unknown-linux-gnu"; \
    if [ "$(uname -m)" != "$triple" ]; then \
      package="gcc-${triple//_/-}-linux-gnu"; \
      apt-get update; \
      apt-get install -y --no-install-recommends "$package" "libc6-dev-$TARGETARCH-cross"; \
      rm -rf /var/lib/apt/lists/*; \
      upper=${triple^^}; \
      printf 'export CARGO_TARGET_%s_UNKNOWN_LINUX_GNU_LINKER=%s-linux-gnu-gcc CC_%s_unknown_linux_gnu=%s-linux-gnu-gcc\n' \
        "$upper" "$triple" "$triple" "$triple" > /cross; \
    else touch /cross; fi; \
    echo "export TARGET=$triple-unknown-linux-gnu" >> /cross

# Dependencies in a layer of their own, rebuilt only when the manifests change.
COPY Cargo.toml Cargo.lock ./
COPY benches/http/Cargo.toml benches/http/
COPY tests/model/Cargo.toml tests/model/
RUN . /cross; \
    # Tests and benchmarks stay outside; members of the workspace need a manifest and a file.
    sed -i '/^\[\[\(test\|bench\)\]\]/,/^$/d' Cargo.toml; \
    for member in benches/http tests/model; do mkdir "$member/src"; echo 'fn main() {}' > "$member/src/main.rs"; done; \
    mkdir src; \
    echo 'fn main() {}' > src/main.rs; \
    touch src/lib.rs; \
    cargo build --locked --release --target "$TARGET"; \
    rm -r src

COPY src src
RUN . /cross; \
    # Cargo compares times, and a checkout's may be older than the layer's.
    find src -name '*.rs' -exec touch {} +; \
    cargo build --locked --release --target "$TARGET" --bin bloomguard; \
    cp "target/$TARGET/release/bloomguard" /bloomguard

# glibc and libgcc, certificate authorities, no shell; runs as 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG REVISION=unknown
LABEL org.opencontainers.image.title="bloomguard" \
      org.opencontainers.image.description="A Bloom filter sidecar that answers lookups of absent keys before they cost the cache or the database anything" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /bloomguard /usr/local/bin/bloomguard
COPY LICENSE /usr/share/doc/bloomguard/LICENSE
USER 65532:65532
EXPOSE 4040 4041
ENTRYPOINT ["/usr/local/bin/bloomguard"]
CMD ["serve", "--config", "/etc/bloomguard/config/bloomguard.toml"]
