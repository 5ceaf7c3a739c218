"""Functions that are jobs, as an application has them. Both checkers take each line but those marked as wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, assert_type

from limpyd_jobs import (
    GIVEN,
    AddedJob,
    Job,
    PreparedCall,
    Queue,
    Resource,
    current_job,
    job,
    job_resource,
    worker_resource,
)


@job
def plain(to: str, size: int = 3) -> int:
    return size


@job(queue="mails", priority=2, retry="times=3", unique="to", keep_result=True)
def with_options(to: str, *, when: date | None = None) -> list[str]:
    return [to]


@job(queue="mails")
async def in_a_loop(to: str) -> int:
    return await in_a_loop("bob")


@job(queue="mails")
def with_job(to: str, this: Job = GIVEN, queue: Queue | None = None) -> None:
    assert_type(this.ident, str)


@worker_resource
def pool() -> Iterator[Path]:
    yield Path("/")


@job_resource
async def session() -> AsyncIterator[Path]:
    yield Path("/")


@job(queue="mails")
async def with_resources(to: str, pool: Annotated[Path, Resource(pool)] = GIVEN) -> str:
    return pool.name


@worker_resource  # wrong
def no_resource() -> int:
    return 5


@plain.on_success
def succeeded(this: Job, queue: Queue, result: int) -> None:
    print(this.ident)


@plain.on_sucess  # wrong
def misspelt(this: Job, queue: Queue, result: int) -> None:
    print(this.ident)


async def add() -> None:
    assert_type(await plain.aadd("ann"), AddedJob[int])
    assert_type(await plain.add("ann").aresult(), int)
    assert_type((await in_a_loop.configure(priority=5).aadd("ann")).result(), int)


assert_type(in_a_loop.add("ann").result(), int)
assert_type(plain("ann"), int)
assert_type(with_options("ann"), list[str])
assert_type(plain.add("ann").result(), int)
assert_type(with_options.configure(priority=5, delayed_for=60, identifier="a").add("ann").result(), list[str])
assert_type(plain.add("ann").added, bool)
assert_type(plain.add("ann").job, Job)
assert_type(plain.prepare("ann"), PreparedCall[int])
assert_type(plain.prepare("ann").add(queue="slow").result(), int)
assert_type(with_options.configure(priority=5).prepare("ann").add().result(), list[str])
assert_type(current_job(), Job)
assert_type(current_job(None), Job | None)
assert_type(with_job.add("ann"), AddedJob[None])
assert_type(with_resources.add("ann").result(), str)
assert_type(pool.get(), Path)
pool.override(Path("/tmp"))
pool.override("/tmp")  # wrong
with_resources.add()  # wrong
plain()  # wrong
with_job.add()  # wrong
plain.on_error(5)  # wrong
plain.add()  # wrong
plain.add(5)  # wrong
plain.add("ann", "bob")  # wrong
plain.add("ann", siez=3)  # wrong
plain.aadd(5)  # wrong
plain.prepare(5)  # wrong
with_options.configure(priority=5).prepare()  # wrong
in_a_loop.aadd()  # wrong
plain.configure(priority="high").add("ann")  # wrong
plain.configure(priority=5).add(5)  # wrong
plain.configure(prioriti=5)  # wrong
with_options.add("ann", date(2020, 1, 1))  # wrong
with_options.add("ann", when="tomorrow")  # wrong
with_options.add("ann").result(timeout="soon")  # wrong
job(que="mails")  # wrong
job(queue=5)  # wrong
job(base=str)  # wrong
