#!/bin/sh
# Makes an image without a base image, where no registry can be reached: a built bloomguard, its libraries, certificate
# authorities, and nothing else. Otherwise use the Dockerfile.
#
#   cargo build --release && sh deploy/image-from-scratch.sh target/release/bloomguard bloomguard:0.1.0
#
# Needs buildah and the rights to mount: root, or `buildah unshare sh deploy/image-from-scratch.sh …`.
set -eu

binary=${1:-target/release/bloomguard}
name=${2:-bloomguard:0.1.0}
[ -x "$binary" ] || { echo "no program at $binary: cargo build --release" >&2; exit 1; }

container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")

install -D -m 755 "$binary" "$root/usr/local/bin/bloomguard"
# The program names its loader by an absolute path; libraries are found where the loader was built to look.
ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
    install -D -m 755 "$library" "$root$library"
done
authorities=/etc/ssl/certs/ca-certificates.crt
[ ! -e "$authorities" ] || install -D -m 644 "$authorities" "$root$authorities"
echo 'nonroot:x:65532:65532::/:/sbin/nologin' | install -D -m 644 /dev/stdin "$root/etc/passwd"
buildah umount "$container" >/dev/null

buildah config --user 65532:65532 --port 4040 --port 4041 \
    --entrypoint '["/usr/local/bin/bloomguard"]' \
    --cmd 'serve --config /etc/bloomguard/config/bloomguard.toml' \
    --label org.opencontainers.image.title=bloomguard \
    --label org.opencontainers.image.licenses=MIT \
    "$container"
buildah commit --quiet "$container" "$name"
