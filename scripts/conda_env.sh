#!/bin/sh
# Makes, updates or exports the conda environment CONDA_ENV (make install_conda_env, make export_conda_env).
# CONDA names the program; without it the first of conda, mamba, micromamba that is there.
set -eu
cd "$(dirname "$0")/.."

CONDA_ENV=${CONDA_ENV:-supertrainer}
CONDA_FILE=${CONDA_FILE:-environment.export.yaml}

fail() { # what, why, fix
    printf 'conda: %s\n  Why: %s\n  Fix: %s\n' "$1" "$2" "$3" >&2
    exit 2
}

find_conda() { # conda is often a shell function alone, then CONDA_EXE or MAMBA_EXE names the program
    for candidate in ${CONDA:+"$CONDA"} ${CONDA_EXE:+"$CONDA_EXE"} conda mamba ${MAMBA_EXE:+"$MAMBA_EXE"} micromamba; do
        command -v "$candidate" && return
    done
    fail "none of conda, mamba and micromamba is on PATH." "$1 is done by one of them." \
        "install Miniforge, or load your site's conda module, or name the program: make CONDA=/path/to/conda … ; without conda, make setup builds .venv."
}

exists() { "$conda" env list | awk '{ print $1 }' | grep -qFx "$CONDA_ENV"; }

install() {
    conda=$(find_conda "making an environment") || exit 2
    micromamba=$(basename "$conda" | grep -c '^micromamba' || true)
    if ! exists; then
        echo "conda: creating $CONDA_ENV from environment.yaml"
        if [ "$micromamba" = 1 ]; then "$conda" create --yes -n "$CONDA_ENV" -f environment.yaml
        else "$conda" env create -n "$CONDA_ENV" -f environment.yaml; fi
    else
        echo "conda: updating $CONDA_ENV from environment.yaml"
        if [ "$micromamba" = 1 ]; then "$conda" install --yes -n "$CONDA_ENV" -f environment.yaml
        else "$conda" env update -n "$CONDA_ENV" -f environment.yaml; fi
    fi
    "$conda" run -n "$CONDA_ENV" python -m pip install --no-deps -r requirements/samples.txt
    echo "conda: done. Start with: conda activate $CONDA_ENV"
}

# What names this machine or site, or may hold a secret, goes: the prefix, the environment's variables, file paths, channels
# that are addresses, credentials in a URL. A local version (+cpu, +cu130) and this checkout are no releases of an index.
portable() {
    awk '
        /^[a-z]/ { section = $1 }
        section == "prefix:" || section == "variables:" { next }
        / @ file:/ || /^ *- --/ || /^ *- [a-z]+:\/\// || /^ *- \// { left_out++; next }
        {
            sub(/supertrainer==.*/, "-e .[dev]")
            sub(/\/\/[^\/@]*@/, "//")
            if ($2 ~ /==/) sub(/\+.*/, "")
            print
        }
        END { if (left_out) print "conda: left out " left_out " lines that name this machine or site" > "/dev/stderr" }'
}

export_env() {
    conda=$(find_conda "an export") || exit 2
    exists || fail "there is no conda environment $CONDA_ENV." "only an environment that is there can be exported." \
        "make install_conda_env CONDA_ENV=$CONDA_ENV, or name one of: $("$conda" env list | awk '/^[^#]/ && NF { print $1 }' | tr '\n' ' ')"
    raw=$("$conda" env export -n "$CONDA_ENV" --no-builds)
    printf '%s\n' "$raw" | portable >"$CONDA_FILE"
    echo "conda: wrote $CONDA_FILE"
}

case ${1:-} in
    install) install ;;
    export) export_env ;;
    *) echo "usage: $0 install | export" >&2; exit 2 ;;
esac
