"""Functions that are jobs, as an application has them. Both checkers take each line but those marked as wrong."""

from __future__ import annotations

from datetime import date
from typing import assert_type

from limpyd_jobs import GIVEN, AddedJob, Job, PreparedCall, Queue, current_job, job


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
