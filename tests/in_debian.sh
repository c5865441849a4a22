#!/usr/bin/env bash
# Runs the README's two commands in a bare Debian of another version, as a newcomer's machine has it:
#
#   tests/in_debian.sh [--suite NAME] [--build-dir DIR]
#
#   --suite NAME      which version (default: trixie, which is Debian 13)
#   --build-dir DIR   where that Debian is put, in place of an earlier one; some 3 GB (default: build/debian)
#
# Needs root and debootstrap. Exit status: 0 both commands succeeded, 1 one did not, 2 it could not begin.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
value suite trixie
folder build_dir "$root/build/debian"
parse_options "$@"
[ "$(id -u)" -eq 0 ] || options_wrong "needs root to change into another Debian"
require_packages debootstrap

# What is not a Debian of this script's making is not removed.
made_here=$build_dir/zeropp/tests/in_debian.sh
[ -e "$made_here" ] || [ -z "$(ls -A "$build_dir")" ] || options_wrong "--build-dir is neither empty nor a Debian from before"
rm -rf "$build_dir"
debootstrap --variant=minbase "$suite" "$build_dir" >/dev/null || options_wrong "debootstrap could not make a $suite"
# Without the name of the machine, mpirun waits for a name server in vain.
echo "127.0.0.1 localhost $(hostname)" >"$build_dir/etc/hosts"
# Whom this machine trusts: its way out may be through a proxy.
if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates "$build_dir/usr/local/share/"
fi
mkdir "$build_dir/zeropp"
git -C "$root" ls-files -z --cached --others --exclude-standard |
    tar -C "$root" --ignore-failed-read --null --files-from=- -c 2>/dev/null | tar -C "$build_dir/zeropp" -x

# Mounts and processes are this command's own, and go with it.
# shellcheck disable=SC2016  # $1 is for the inner shell
unshare --mount --pid --fork --kill-child bash -c '
    set -e
    # A mount of its own, or nothing in there may make namespaces: clusters do.
    mount --bind "$1" "$1"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/dev/shm"
    mount -t proc proc "$1/proc"
    mount -t sysfs sysfs "$1/sys"
    exec env -i ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$1" bash -c "
        cd /zeropp
        status=0
        ./examples/run.sh || status=1
        ./tests/run.sh || status=1
        exit \$status"
' in_debian "$build_dir"
