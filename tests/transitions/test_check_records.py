"""check_records: records are looked at, and put right."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from worlds import Error, World, pk_of

from limpyd_jobs.check import scripts
from limpyd_jobs.check.records import hash_fields, integers
from limpyd_jobs.records import records


def check_records(world: World, *pks: str, repair: bool = False, model: Any = None) -> Any:
    model = model or world.job_class
    return scripts.check_records(world.client, model, pks, hash_fields(model), integers(model), repair)


@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "success", "error", "canceled", "custom"])
def test_nothing_is_wrong_with_a_sound_job(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        problems, live = check_records(any_world, pk_of(job), repair=True)
    assert problems == []
    status = any_world.state(job).get("status", "")
    assert live == ([[pk_of(job), status, "a", ""]] if status in {"w", "d", "r"} else [])


@pytest.mark.leaves("I3", "I7")
def test_a_job_that_cannot_be_as_it_says_is_marked(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    job.queued.delete()
    assert check_records(any_world, pk_of(job))[1] == [[pk_of(job), "w", "a", "1"]]
    job.queued.hset("1")
    job.status.hset("x")
    assert check_records(any_world, pk_of(job))[1] == [[pk_of(job), "x", "a", "1"]]


def test_a_record_that_does_not_exist_is_no_problem_unless_it_is_in_the_collection(world: World) -> None:
    assert check_records(world, "7") == ([], [])
    world.client.sadd("jobs:job:collection", 7)
    assert check_records(world, "7", repair=True)[0] == [["7", "no hash", "", "none"]]
    assert check_records(world, "7") == ([], [])


def test_a_record_with_nothing_but_what_version_2_does_not_know_is_deleted(world: World) -> None:
    pk = records.add_error(Error, {"_fingerprint": "0123456789abcdef"})
    world.client.srem("jobs:error:collection", pk)
    with world.unchanged():
        check_records(world, pk, model=Error)
    assert check_records(world, pk, repair=True, model=Error)[0] == [[pk, "left over", "", ""]]
    assert world.client.keys("jobs:error:*") == ["jobs:error:max_pk"]
    assert check_records(world, pk, model=Error) == ([], [])


def test_a_value_with_indexes_of_all_kinds_is_put_right_in_all_of_them(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    job.tries.hset("many")
    with any_world.unchanged():
        check_records(any_world, pk_of(job))
    check_records(any_world, pk_of(job), repair=True)
    assert any_world.hash(job)["tries"] == "0"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b"\xff", "\\xff"),
        (b"a\xc3\xa9\xe9b", "aé\\xe9b"),
        ("😀".encode() + b"\xf0\x9f", "😀\\xf0\\x9f"),
        (b"\xc0\x80", "\\xc0\\x80"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (b"\x00\xfe", "\0\\xfe"),
    ],
)
def test_bytes_that_are_no_text_are_escaped(world: World, stored: bytes, expected: str) -> None:
    job = world.job_that_is("success")
    world.client.hset(f"jobs:job:{pk_of(job)}:hash", "identifier", stored)
    world.client.srem("jobs:job:identifier:a", pk_of(job))
    assert [problem[1] for problem in check_records(world, pk_of(job), repair=True)[0]] == ["not text"]
    assert world.hash(job)["identifier"] == expected
    assert check_records(world, pk_of(job))[0] == []


@each("text", ["", "é", "😀", "\x7f", "a\0b", "\ud7ff\ue000\U0010ffff", "ÿþ", "߿ࠀ￿𐀀"])
def test_text_of_any_kind_is_no_problem(world: World, text: str) -> None:
    job = world.job_that_is("success")
    job.identifier.hset(text)
    assert check_records(world, pk_of(job))[0] == []


def test_a_record_that_cannot_be_looked_at_keeps_no_other(world: World) -> None:
    jobs = [world.add(identifier)[1] for identifier in "ab"]
    world.client.srem("jobs:job:status:w", pk_of(jobs[1]))
    world.client.rename(f"jobs:job:{pk_of(jobs[0])}:hash", "aside")
    world.client.set(f"jobs:job:{pk_of(jobs[0])}:hash", "x")
    problems = check_records(world, *map(pk_of, jobs))[0]
    world.client.rename("aside", f"jobs:job:{pk_of(jobs[0])}:hash")
    world.client.sadd("jobs:job:status:w", pk_of(jobs[1]))
    assert [problem[:2] for problem in problems] == [["1", "not a hash"], ["2", "not indexed"]]
