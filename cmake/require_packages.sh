# shellcheck shell=bash
# To be sourced by bash scripts.
#
# require_packages NAME...    installs the Debian or Ubuntu packages that are missing; never asks. Exits with status 2,
#                             and says what to install, where it may not. Where there is no apt, it only says so.
# choose_clang                prints the major version of clang to use: 19, else the newest from 16 on; or nothing.

require_packages_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

require_packages_apt() {
    local -a as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" </dev/null
}

require_packages_may_install() {
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

# Once per script: a fresh machine has no package lists, and stale ones name files that are gone.
require_packages_update() {
    [ -z "${require_packages_updated:-}" ] || return 0
    require_packages_updated=yes
    require_packages_apt update || echo "apt-get update failed; going on with the package lists that are here" >&2
}

require_packages() {
    local package
    local -a missing=()
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get here; going on with what is installed. Needed are: $*" >&2
        return 0
    fi
    for package in "$@"; do
        require_packages_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if ! require_packages_may_install; then
        echo "Missing packages, and no right to install them without asking. Please run:" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 2
    fi
    echo "Installing: ${missing[*]}"
    require_packages_update
    if ! require_packages_apt install -y --no-install-recommends "${missing[@]}" >/dev/null; then
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 2
    fi
}

choose_clang() {
    local version
    for version in 19 $(apt-cache pkgnames clang- 2>/dev/null | sed -n 's/^clang-\([0-9]\+\)$/\1/p' | sort -rn); do
        [ "$version" -ge 16 ] || continue
        if command -v "clang++-$version" >/dev/null ||
            [ -n "$(apt-cache madison "clang-$version" 2>/dev/null)" ]; then
            echo "$version"
            return 0
        fi
    done
}
