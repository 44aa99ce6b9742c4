# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Chroots of Debian suites, for scripts that build or test in them. A script sources this file. Chroots remain in the user's cache
# between runs. What runs in them runs in separate namespaces: when a script ends, for any reason, no mount and no network
# interface remains, and no process within a minute of the step's limit.

# Suites that quietwire supports.
# shellcheck disable=SC2034 # scripts use it
readonly SUITES=(bookworm trixie sid)
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
chroots="${XDG_CACHE_HOME:-$HOME/.cache}/quietwire/chroots"
readonly chroots logs="$chroots/logs"

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
lacks() {
    complain "$*"
    exit 3
}

# ---- Inside: root, in separate namespaces ---------------------------------------------------------------------------

# Mounts FROM at TO of the chroot, read-only.
mount_read_only() {
    mkdir -p "$2"
    mount --bind "$1" "$2"
    mount -o remount,bind,ro "$2"
}

# Mounts the file systems of the kernel and of temporary files in a chroot that is a mount point. Argument: CHROOT.
mount_kernel() {
    mount -t proc proc "$1/proc"
    # sysfs of this network namespace.
    mount -t sysfs sysfs "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/tmp"
    mount -t tmpfs tmpfs "$1/run"
}

# Creates a chroot. Arguments: CHROOT SUITE MIRROR PACKAGE...
create() {
    local root=$1 suite=$2 mirror=$3
    shift 3
    rm -rf --one-file-system "$root" "$root.new"
    debootstrap --variant=minbase --keyring="$KEYRING" "$suite" "$root.new" "$mirror"
    # With apt, which finds an order for packages that require a service manager. It reaches the mirror like this system's
    # apt, and starts no service.
    apt-config dump | grep '^Acquire::' >"$root.new/etc/apt/apt.conf.d/99host"
    printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d"
    chmod +x "$root.new/usr/sbin/policy-rc.d"
    mount -t proc proc "$root.new/proc"
    chroot "$root.new" apt-get update --quiet
    chroot "$root.new" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --quiet --yes --no-install-recommends "$@"
    umount "$root.new/proc"
    rm -rf "$root.new"/var/cache/apt/archives/*.deb
    printf '%s\n' "$*" >"$root.new/packages"
    mv "$root.new" "$root"
}

# ---- Outside: the user ----------------------------------------------------------------------------------------------

# Requires the tools of chroots, besides those given, and root's rights, and locks the chroots. Sets `as_root` and `mirror`.
open_chroots() {
    export PATH="$PATH:/usr/sbin:/sbin"
    local tool
    for tool in apt-get chroot debootstrap flock ip timeout unshare "$@"; do
        command -v "$tool" >/dev/null || lacks "cannot find '$tool' (apt-get install debootstrap iproute2 util-linux; Rust: scripts/setup)"
    done
    [[ -f $KEYRING ]] || lacks "cannot find $KEYRING (apt-get install debian-archive-keyring)"
    as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || lacks 'chroots require root, and sudo is not installed (run this script as root)'
        sudo --validate || lacks 'chroots require root, and sudo refused (run this script as root)'
        as_root=(sudo)
    fi
    readonly as_root
    # shellcheck disable=SC2016 # apt substitutes the value
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
        head -n 1)
    [[ -n $mirror ]] || lacks 'apt knows no repository of Debian (apt-get update)'
    readonly mirror
    mkdir -p "$logs"
    exec 9>"$chroots/lock"
    flock --nonblock 9 || lacks "another run uses $chroots (wait until it ends)"
    trap stop_job EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

job=
# shellcheck disable=SC2317,SC2329 # called by the trap
stop_job() {
    [[ -z $job ]] || "${as_root[@]}" kill -TERM "$job" 2>/dev/null || true
    wait
}

# Runs the calling script as root in separate namespaces, for a limited time. Arguments: LOG MINUTES NAMESPACES ARGUMENT...
isolated() {
    local log=$1 minutes=$2 code=0 script
    local -a namespaces
    read -ra namespaces <<<"$3"
    shift 3
    script=$(realpath "$0")
    # At the limit, timeout sends SIGTERM to every process of its group. Remaining processes are killed with unshare.
    "${as_root[@]}" timeout --signal=TERM --kill-after=5s "${minutes}m" \
        unshare "${namespaces[@]}" --fork --kill-child -- "$BASH" "$script" "$@" \
        </dev/null >"$log" 2>&1 9>&- &
    job=$!
    wait "$job" || code=$?
    job=
    return "$code"
}

# Creates a chroot, unless one with the required packages exists. Arguments: NAME SUITE MINUTES FRESH PACKAGE...
prepare() {
    local name=$1 suite=$2 minutes=$3 is_fresh=$4 root=$chroots/$1
    shift 4
    if ! $is_fresh && [[ $(cat "$root/packages" 2>/dev/null) == "$*" ]]; then
        return
    fi
    say "$suite: creating $root"
    # With network access, to download packages.
    isolated "$logs/$name-create.log" "$minutes" '--mount --pid' --create "$root" "$suite" "$mirror" "$@"
}
