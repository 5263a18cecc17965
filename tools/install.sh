#!/bin/sh
# Installs into .venv for the Makefile: what it installs in a line, and then a line each minute.
#
#   tools/install.sh EXTRA [PYTHON]
#
# pip's whole output is in .venv/install-EXTRA.log; where pip fails, its end is shown.
set -u

extra=$1 python=${2:-python3}
bin=.venv/bin log=.venv/install-$extra.log
versions='3.11 or 3.12'

is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))'
}

fail() {
    echo "$*" >&2
    exit 1
}

# What pip is at, shortened to a line.
latest() {
    grep -E '^ *(Collecting|Downloading|Building|Preparing|Installing)' "$log" |
        tail -n 1 | sed 's/^ *//' | cut -c 1-100
}

# Each minute says so; ends with this script, and with what it waits for.
minutes() {
    minute=0
    while sleep 60 >/dev/null 2>&1; do
        kill -0 $$ 2>/dev/null || exit
        minute=$((minute + 1))
        echo "  $minute min: $(latest)"
    done
}

run_pip() {
    "$bin/python" -m pip install --no-input --progress-bar off "$@" >>"$log" 2>&1 && return
    status=$?
    kill "$ticker" 2>/dev/null
    echo "pip has failed with status $status. The end of $log:" >&2
    tail -n 15 "$log" >&2
    exit "$status"
}

# An environment that was left without pip is not one yet.
if ! "$bin/python" -m pip --version >/dev/null 2>&1; then
    command -v "$python" >/dev/null || fail "there is no $python: make demo PYTHON=python3.12, or another of Python $versions"
    is_supported "$python" ||
        fail "rejuice needs Python $versions, and $python is another: make demo PYTHON=python3.12"
    "$python" -m venv .venv || exit
fi
is_supported "$bin/python" ||
    fail "rejuice needs Python $versions, and .venv has another: remove .venv, then make demo PYTHON=python3.12"

echo "installing rejuice[$extra] into .venv; the output of pip is in $log"
: >"$log"
minutes &
ticker=$!
trap 'kill "$ticker" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
run_pip --upgrade pip
# Torch first and alone: what comes after it takes the build that is there.
run_pip -c constraints.txt torch
run_pip -c constraints.txt -e ".[$extra]"
