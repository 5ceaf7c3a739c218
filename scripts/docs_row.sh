#!/usr/bin/env bash
# Build the manual as the README says, in a fresh virtual environment with the extra [docs] alone: a warning is a failure. The
# pages are not written. The ordinary build has all that the tests need, so it does not see what that extra lacks.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/find_python.sh

python=$(find_python 3.12 3.13 3.11) || { echo "This machine has no Python that is supported" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv" \
  && one_at_a_time "$work/venv/bin/pip" install --quiet -e ".[docs]" \
  && "$work/venv/bin/python" -m sphinx -qEWn -b dummy -d "$work/doctrees" docs "$work/manual" </dev/null
