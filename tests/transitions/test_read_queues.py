"""read_queues: what stands in some queues, all of one moment."""

from __future__ import annotations

import pytest
from worlds import EVERYTHING, World


def test_the_jobs_that_run_and_wait_are_told_by_priority(any_world: World) -> None:
    jobs = [any_world.add(f"{number}", "q", number // 2)[1] for number in range(4)]
    any_world.add("other", "p")
    assert any_world.claim(any_world.waiting_key("q", 1)) is not None
    with any_world.unchanged():
        found = any_world.queue_class.read_all("q")
    idents = [job.ident for job in jobs]
    assert [each[1:] for each in found] == [
        ("q", "1", [idents[2]], [idents[3]]),
        ("q", "0", [], idents[:2]),
    ]
    assert [each.queue.waiting.lmembers() for each in found] == [each.waiting for each in found]
    assert any_world.queue_class.read_all(["no", "such"]) == []


def test_those_whose_lease_holds_may_be_left_out(any_world: World) -> None:
    held, lapsed = (any_world.job_that_is("running", identifier) for identifier in "ab")
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {lapsed.ident: 5})
    assert [each.running for each in any_world.queue_class.read_all("q")] == [[lapsed.ident, held.ident]]
    assert [each.running for each in any_world.queue_class.read_all("q", lapsed=True)] == [[lapsed.ident]]


@pytest.mark.leaves(*EVERYTHING)
def test_keys_of_a_wrong_type_are_empty(any_world: World) -> None:
    base = any_world.queue_key("q")
    for key in ("waiting", "_running"):
        any_world.client.set(f"{base}:{key}", "foreign")
    (found,) = any_world.queue_class.read_all("q")
    assert (found.running, found.waiting) == ([], [])
