#!/bin/sh
# Makes an image without any base image, where no registry can be reached: a bloomguard that is built already, the libraries that it needs,
# certificate authorities, and nothing else. For all else there is the Dockerfile.
#
#   cargo build --release && sh deploy/image-from-scratch.sh target/release/bloomguard bloomguard:0.1.0
#
# Takes buildah and the rights to mount: root, or `buildah unshare sh deploy/image-from-scratch.sh …`.
set -eu

binary=${1:-target/release/bloomguard}
name=${2:-bloomguard:0.1.0}
[ -x "$binary" ] || { echo "no program at $binary: cargo build --release" >&2; exit 1; }

container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")

install -D -m 755 "$binary" "$root/usr/local/bin/bloomguard"
# The loader stands in the program by its absolute path, the libraries are looked for where it has been built to look.
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
