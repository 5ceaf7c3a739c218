"""The comparison of the stories sees what it must see, and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cases import each
from compare import comparable, differences, same_after_all

BEGAN = datetime(2024, 5, 6, 7, 8, 9, 123456)


def telling(began: datetime = BEGAN, queue_pk: int = 1, **changes: Any) -> list[list[Any]]:
    """Return what is said when a job is delayed by a minute."""
    until = began + timedelta(seconds=60.25)
    values = {"status": "d", "queued": "1", "added": str(began + timedelta(seconds=1)), "delayed_until": str(until)}
    score = (until - datetime(1970, 1, 1)).total_seconds()
    values = {field: value for field, value in {**values, **changes}.items() if value is not None}
    state = {
        "jobs:job:1:hash": ["hash", values],
        f"jobs:queue:{queue_pk}:hash": ["hash", {"name": "q", "priority": "2"}],
        "jobs:queue:collection": ["set", [str(queue_pk)]],
        f"jobs:queue:{queue_pk}:delayed": ["zset", [["limpyd_jobs.models.Job:1", changes.get("score", score)]]],
    }
    return [
        ["began", str(began)],
        ["hash", "on_delayed", ["jobs:job:1:hash"], values, [f"jobs:queue:{queue_pk}:delayed"]],
        ["log", "WARNING", "limpyd-jobs", f"[123456] [q|1|a] job delayed until {until}"],
        ["state", "in the end", state],
    ]


def test_the_same_at_another_time_with_other_queue_pks_is_the_same() -> None:
    later = telling(BEGAN + timedelta(days=400, seconds=17), queue_pk=7)
    assert differences(telling(), later, []) == ""


@each(
    "changes",
    [
        {"status": "w"},
        {"queued": None},
        {"tries": "1"},
        {"added": "2024-05-06T07:08:10.123456"},
        {"added": "2024-05-06 07:08:10"},
        {"delayed_until": str(BEGAN)},
        {"score": 0.0},
        {"score": (BEGAN - datetime(1970, 1, 1)).total_seconds() + 60},
    ],
)
def test_a_change_is_seen(changes: dict[str, Any]) -> None:
    assert differences(telling(), telling(**changes), []) != ""


def test_what_only_version_3_has_is_of_no_interest() -> None:
    assert differences(telling(), telling(_claim_token="x"), []) == ""


def test_what_is_declared_to_differ_is_of_no_interest() -> None:
    changed = telling(status="w")
    assert differences(telling(), changed, ["state/*/status", "hash/*/status"]) == ""
    assert differences(telling(), changed, ["state/*/status"]) != ""


def test_a_declaration_of_what_is_the_same_is_seen() -> None:
    assert same_after_all([(telling(), telling(status="w"))], "state/*/queued")
    assert not same_after_all([(telling(), telling(status="w"))], "state/*/status")


def test_dates_durations_ids_and_tracebacks_become_readable() -> None:
    trace = 'Traceback (most recent call last):\n  File "x", line 1\nValueError: no\n'
    said = telling(end=str(BEGAN), traceback=trace)
    said.insert(1, ["log", "INFO", "limpyd-jobs", "[123456] [q|1|a] success, in 0:00:00.123456"])
    lines = [str(line) for line in comparable(said)]
    assert 'log/INFO = ["limpyd-jobs", "[id] [q|1|a] success, in <duration>"]' in lines
    assert 'log/WARNING = ["limpyd-jobs", "[id] [q|1|a] job delayed until <now+60s>"]' in lines
    assert 'state/in the end/jobs:job:1:hash/end = "<now>"' in lines
    assert 'state/in the end/jobs:job:1:hash/traceback = "Traceback … ValueError: no"' in lines
    ident = "limpyd_jobs.models.Job:1"
    assert f'state/in the end/jobs:queue:q@2:delayed/{ident} = "<epoch of a delayed_until>"' in lines
    assert "state/in the end/jobs:queue:collection/q@2 = true" in lines
