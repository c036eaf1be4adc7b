#!/bin/sh
# Installs the servers that the tests start: with apt-get as root or by sudo, otherwise names the packages and stops.
set -eu

PATH="$PATH:/usr/sbin:/sbin"
missing=""
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v valkey-server >/dev/null || missing="$missing valkey-server"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || missing="$missing postgresql"
ls /usr/lib/postgresql/*/bin/pgbench >/dev/null 2>&1 || command -v pgbench >/dev/null || missing="$missing postgresql-contrib"
command -v pgbouncer >/dev/null || missing="$missing pgbouncer"
command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null || missing="$missing mariadb-server"
command -v nginx >/dev/null || missing="$missing nginx-light"
command -v openssl >/dev/null || missing="$missing openssl"
command -v setpriv >/dev/null || missing="$missing util-linux"
command -v python3 >/dev/null || missing="$missing python3"
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing="$missing prometheus"
python3 -c 'import ctypes.util, sys; sys.exit(not ctypes.util.find_library("xxhash"))' 2>/dev/null || missing="$missing libxxhash0"
command -v curl >/dev/null || missing="$missing curl"
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ]; then
    run=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    run="sudo"
else
    run="none"
fi
if [ "$run" = none ] || ! command -v apt-get >/dev/null; then
    echo "The tests need these Debian packages; install them and try again:$missing" >&2
    exit 1
fi
echo "installing:$missing"
$run env DEBIAN_FRONTEND=noninteractive apt-get update -q
# Debian 12 has Valkey in its backports only, which apt uses for packages that it finds nowhere else.
if ! apt-cache show valkey-server >/dev/null 2>&1 && grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
    backports="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main"
    echo "$backports" | $run tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
    $run env DEBIAN_FRONTEND=noninteractive apt-get update -q
fi
# shellcheck disable=SC2086 # a list of words
$run env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
