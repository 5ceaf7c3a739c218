"""What the code of a job emits can be followed while it runs, from any place on, until the job has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
import redis
from cases import each
from running import work
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import Job, Queue, Retry, current_job, job
from limpyd_jobs.models.following import output_reader
from limpyd_jobs.models.following.output import Chunk
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.testing import drain

pytestmark = pytest.mark.usefixtures("redis_client")


class Answer(Job):
    namespace = "output"
    queue_name = "answers"

    def run(self, queue: Queue) -> None:
        for word in ("Hel", "lo"):
            self.emit({"delta": word})


class Again(Answer):
    default_retry_policy = Retry(times=1, delay=0)

    def run(self, queue: Queue) -> None:
        self.emit("begun")
        if self.tries.hget() == "1":
            raise ValueError("the first try")
        self.emit("done")


class Short(Answer):
    keep_output = timedelta(seconds=20)


@job(queue="answers")
async def spell(word: str) -> None:
    for letter in word:
        await current_job().aemit(letter)


class NoSuccess(Queue):
    namespace = "output"
    keep_success = 0


def values(chunks: Any) -> list[Any]:
    return [chunk.value for chunk in chunks]


def readers() -> list[str]:
    return [thread.name for thread in enumerate_threads() if thread.name == "limpyd-jobs-output"]


@contextmanager
def followed(follow: Callable[[], Any]) -> Iterator[list[Any]]:
    """Follow in a thread; wait for the end of that."""
    found: list[Any] = []
    thread = Thread(target=lambda: found.extend(follow()))
    thread.start()
    yield found
    thread.join(60)
    assert not thread.is_alive()


def test_what_a_job_emits_is_read_in_its_order_until_the_job_has_ended() -> None:
    added = Answer.add_job("a")
    with followed(added.output) as found:
        wait_until(readers)
        work("answers", callback=None)
    assert found == [Chunk("1-1", {"delta": "Hel"}, 1), Chunk("1-2", {"delta": "lo"}, 1)]
    assert values(added.output()) == values(found)
    assert values(added.output(after="1-1")) == [{"delta": "lo"}]
    assert values(added.output(after="1-2")) == []


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    job = Answer.add_job("a")
    with job.claim("me"), pytest.raises(TypeError, match=r"^JSON cannot hold a chunk of output: it holds \{1\}$"):
        job.emit({1})


def test_functions_and_coroutines_emit_through_the_current_job() -> None:
    added = spell.add("word")
    drain("answers")
    assert values(added.job.output()) == ["w", "o", "r", "d"]


def test_under_asyncio_it_is_followed_by_async_for() -> None:
    async def follow() -> list[Any]:
        added = Answer.add_job("a")
        task = asyncio.ensure_future(collect(added))
        await asyncio.to_thread(wait_until, readers)
        await asyncio.to_thread(work, "answers", callback=None)
        return await task

    async def collect(added: Answer) -> list[Any]:
        async with added.aoutput() as chunks:
            return [chunk.value async for chunk in chunks]

    assert asyncio.run(follow()) == [{"delta": "Hel"}, {"delta": "lo"}]


def test_each_chunk_is_there_at_once() -> None:
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    with Answer.get(claimed.pk.get()).output() as chunks:
        for number in range(20):
            claimed.emit(number)
            assert values(chunks.read(60)) == [number]
        claim.succeed()
        assert chunks.read(60) == []
        assert chunks.has_ended


ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "success": lambda claimed, claim: claim.succeed(),
    "error": lambda claimed, claim: claim.fail(ValueError("failed")),
    "cancel": lambda claimed, claim: claim.cancel(),
    "cancel while it runs": lambda claimed, claim: (Answer.get(claimed.pk.get()).cancel(), claim.succeed()),
    "deletion": lambda claimed, claim: Answer.get(claimed.pk.get()).delete(),
}


@each("end", ENDS)
def test_each_way_in_which_a_job_ends_ends_its_output(end: str) -> None:
    claimed = Answer.add_job()
    claim = claimed.claim("ann")
    with followed(Answer.get(claimed.pk.get()).output) as found:
        claimed.emit("a")
        wait_until(readers)
        ENDS[end](claimed, claim)
    assert values(found) == ["a"] or end == "deletion"


def test_the_output_of_a_job_that_is_gone_has_ended() -> None:
    gone = Answer.add_job()
    gone_too = Answer.get(gone.pk.get())
    gone.delete()
    assert list(gone_too.output()) == []


def test_a_job_that_is_canceled_before_it_runs_ends_its_output_too() -> None:
    waiting = Answer.add_job("a")
    with followed(waiting.output) as found:
        wait_until(readers)
        assert waiting.cancel()
    assert found == []


def test_a_try_after_an_error_begins_anew_and_says_so() -> None:
    added = Again.add_job("a")
    with followed(added.output) as found:
        wait_until(readers)
        work("answers", callback=None, max_loops=2)
    assert [(chunk.value, chunk.run) for chunk in found] == [("begun", 1), ("begun", 2), ("done", 2)]
    assert values(added.output(after=found[0].id)) == ["begun", "done"]


def test_a_job_that_is_put_back_after_its_end_goes_on_with_the_next_run() -> None:
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    claimed.emit("first")
    claim.fail(ValueError("failed"))
    claimed.requeue()
    claim = claimed.claim("bob")
    with followed(Answer.get(claimed.pk.get()).output) as found:
        claimed.emit("second")
        claim.succeed()
    assert [(chunk.value, chunk.run) for chunk in found] == [("first", 1), ("second", 2)]


def test_a_queue_that_keeps_no_success_lets_followers_read_the_end() -> None:
    added = Answer.add_job("a", queue_model=NoSuccess)
    with followed(added.output) as found:
        wait_until(readers)
        work("answers", queue_model=NoSuccess, callback=None)
    assert values(found) == [{"delta": "Hel"}, {"delta": "lo"}]


def test_many_followers_of_many_jobs_share_one_connection(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    there = Answer.bound_to(JobsDatabase(unix_socket_path=redis_server.socket, db=0, max_connections=3))
    jobs = there.add_jobs(map(str, range(10)))
    with ThreadPoolExecutor(40) as threads:
        followers = [threads.submit(lambda number=number: values(jobs[number % 10].output())) for number in range(40)]
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1 and len(readers()) == 1)
        work("answers", callback=None, max_loops=10)
        assert all(each.result(60) == [{"delta": "Hel"}, {"delta": "lo"}] for each in followers)
    wait_until(lambda: not readers())


def test_tasks_share_it_too() -> None:
    async def follow() -> Any:
        jobs = [Answer.add_job() for _ in range(5)]
        tasks = [asyncio.ensure_future(collect(jobs[number % 5])) for number in range(20)]
        await asyncio.to_thread(wait_until, lambda: len(readers()) == 1)
        await asyncio.to_thread(work, "answers", callback=None, max_loops=5)
        return await asyncio.gather(*tasks)

    async def collect(added: Answer) -> list[Any]:
        return [chunk.value async for chunk in added.aoutput()]

    assert asyncio.run(follow()) == [[{"delta": "Hel"}, {"delta": "lo"}]] * 20


def test_a_chunk_wakes_all_tasks_of_a_loop_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = Answer.add_job("a")
    claim, calls = claimed.claim("ann"), list[int]()

    async def follow() -> Any:
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def counted(function: Any, *arguments: Any, **how: Any) -> Any:
            if function is output_reader.call_all:
                calls.append(len(arguments[0]))
            return call(function, *arguments, **how)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        outputs = [claimed.aoutput() for _ in range(20)]
        assert await asyncio.gather(*(each.read(0.05) for each in outputs)) == [[]] * 20  # all are followed now
        calls.clear()
        await asyncio.to_thread(claimed.emit, "a")
        return await asyncio.gather(*(each.read(60) for each in outputs))

    assert [values(found) for found in asyncio.run(follow())] == [["a"]] * 20
    assert calls == [20]
    claim.succeed()


def test_one_that_is_left_before_the_end_keeps_nothing_open() -> None:
    async def follow() -> None:
        async for _ in waiting.aoutput():
            break

    waiting = Answer.add_job("a")
    claim = waiting.claim("ann")
    with followed(lambda: [next(iter(Answer.get("1").output()))]), followed(lambda: asyncio.run(follow()) or []):
        wait_until(readers)
        waiting.emit("a")
    wait_until(lambda: not readers())
    claim.succeed()


def test_what_comes_while_it_begins_to_follow_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer.add_job("a")
    claim = answer.claim("ann")
    other, output = Answer.get("1").output(), Answer.get("1").output()
    answer.emit("a")
    assert values(other.read()) == values(output.read()) == ["a"]
    assert other.read(timeout=0.01) == []  # the reader reads from here on
    begin = output._begin_following

    def begin_late(*args: Any) -> None:
        answer.emit("b")
        assert values(other.read(timeout=60)) == ["b"]
        begin(*args)
        answer.emit("c")
        wait_until(lambda: output._follower and output._follower._entries)

    monkeypatch.setattr(output, "_begin_following", begin_late)
    assert values(output.read(timeout=60)) == ["b", "c"]
    claim.succeed()
    assert values(other) == ["c"]


def test_one_that_follows_from_a_place_that_will_never_come_keeps_nothing_from_others() -> None:
    answer = Answer.add_job("a")
    claim = answer.claim("ann")
    lost, found = answer.output(after="999999-1"), Answer.get("1").output()
    for output in (lost, found):
        assert output.read(timeout=0.01) == []
    for word in ("a", "b"):
        answer.emit(word)
        assert values(found.read(timeout=60)) == [word]
    assert lost.read(timeout=0.01) == []
    claim.succeed()
    assert values(lost) == values(found) == []


def test_an_entry_of_another_program_ends_no_one_who_follows(redis_client: redis.Redis) -> None:
    answer = Answer.add_job("a")
    claim = answer.claim("ann")
    answer.emit("a")
    redis_client.xadd("output:answer:1:_output", {"value": "1"}, f"{2**64 - 1}-{2**64 - 1}")
    with followed(answer.output) as found:
        wait_until(readers)
        claim.succeed()
    assert values(found) == ["a"]


def test_one_that_was_begun_goes_on_in_a_forked_process() -> None:
    answer = Answer.add_job("a")
    claim = answer.claim("ann")
    answer.emit("a")
    output = answer.output()
    assert values(output.read()) == ["a"]
    assert output.read(timeout=0.01) == []
    assert readers()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if values(output) == ["b"] else 2
        finally:
            os._exit(status)
    answer.emit("b")
    claim.succeed()
    deadline = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    deadline.start()
    assert os.waitpid(child, 0)[1] == 0
    deadline.cancel()
    assert values(output) == ["b"]


def test_one_that_was_begun_goes_on_in_another_loop() -> None:
    async def read(timeout: float | None) -> list[Any]:
        return values(await output.read(timeout))

    answer = Answer.add_job("a")
    claim = answer.claim("ann")
    output = answer.aoutput()
    assert asyncio.run(read(0.01)) == []
    thread = Thread(target=lambda: found.extend(asyncio.run(read(60))))
    found: list[Any] = []
    thread.start()
    wait_until(lambda: output._follower)
    answer.emit("a")
    thread.join(60)
    assert found == ["a"]
    claim.succeed()
    assert asyncio.run(read(60)) == []
    assert output.has_ended
    wait_until(lambda: not readers())


def test_a_slow_follower_misses_nothing_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_reader, "MOST_WAITING", 50)
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    with Answer.get(claimed.pk.get()).output() as chunks:
        claimed.emit(0)
        assert values(chunks.read(60)) == [0]
        assert chunks.read(0.01) == []  # it is followed now
        for number in range(1, 300):
            claimed.emit(number)
        claim.succeed()
        assert values(chunks) == list(range(1, 300))


def test_cut_connections_lose_and_double_nothing(redis_client: redis.Redis) -> None:
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    with followed(Answer.get(claimed.pk.get()).output) as found:
        wait_until(readers)
        for number in range(100):
            claimed.emit(number)
            if number % 20 == 10:
                redis_client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        claim.succeed()
    assert values(found) == list(range(100))


def test_redis_may_go_away_for_a_while(redis_binary: str, tmp_path: Any) -> None:
    with RedisServer(redis_binary, "--appendonly", "yes", port=free_port()) as server:
        there = Answer.bound_to(JobsDatabase(host="127.0.0.1", port=server.port, db=0))
        claimed = there.add_job("a")
        claim = claimed.claim("ann")
        with followed(lambda: there.get(claimed.pk.get()).output()) as found:
            claimed.emit(1)
            wait_until(lambda: found or readers())
            server.stop()
            claimed.emit(2)
            server.start()
            wait_until(lambda: not claimed.emit(3) and len(values(claimed.output(timeout=0))) >= 3)
            claim.succeed()
        assert values(found)[:3] == [1, 2, 3]
