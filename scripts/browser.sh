#!/bin/sh
# A browser without a window for the tests marked `browser`, which look at report.html as a reader would.
#
#   install      Debian's or Ubuntu's chromium, unless a browser is here
set -eu

[ "${1:-}" = install ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n '4p' >&2; exit 2; }

fail() { # what, why, fix
    printf 'browser: %s\n  Why: %s\n  Fix: %s\n' "$1" "$2" "$3" >&2
    exit 2
}

for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do # those that tests/browser.py knows
    if command -v "$name" >/dev/null; then
        printf 'browser: %s is here\n' "$name"
        exit 0
    fi
done
command -v apt-get >/dev/null || fail "there is no apt-get here." "this script knows the packages of Debian and Ubuntu only." \
    "install chromium as your system does; without it those tests are skipped."
[ "$(id -u)" = 0 ] || fail "install needs root, and this is $(id -un)." "apt-get writes to the system." "sudo $0 install"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update || printf 'browser: apt-get update failed; going on with the lists that are here\n'
apt-get -q install -y --no-install-recommends chromium
