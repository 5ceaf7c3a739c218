"""Resources: what the code of jobs is given beside its arguments, opened once a process or once a job."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import redis
from running import work, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import (
    GIVEN,
    STATUSES,
    Cancel,
    ConfigurationException,
    Error,
    Job,
    Queue,
    Resource,
    job,
    job_resource,
    worker_resource,
)
from limpyd_jobs.testing import run_job

pytestmark = pytest.mark.usefixtures("redis_client")

seen: list[Any] = []


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name
        seen.append(f"{name} opened")

    def close(self) -> None:
        seen.append(f"{self.name} closed")


@worker_resource
def pool() -> Iterator[Pool]:
    opened = Pool("pool")
    yield opened
    opened.close()


@worker_resource
async def client() -> AsyncIterator[Pool]:
    opened = Pool("client")
    yield opened
    await asyncio.sleep(0)
    opened.close()


@job_resource
def transaction() -> Iterator[str]:
    try:
        yield "open"
    except ValueError as error:
        seen.append(f"rolled back: {error}")
        raise
    else:
        seen.append("committed")


@job_resource
async def session() -> AsyncIterator[str]:
    yield "open"
    seen.append("session closed")


@worker_resource
def broken() -> Iterator[None]:
    yield
    raise ValueError("no way")


@job(queue="resources", keep_result=True)
def save(
    name: str,
    pool: Annotated[Pool, Resource(pool)] = GIVEN,
    state: Annotated[str, Resource(transaction)] = GIVEN,
    this: Job = GIVEN,
    times: int = 1,
) -> str:
    if name == "bad":
        raise ValueError("bad")
    seen.append(f"{name} {times} with {pool.name}, {state}, {this.arguments.times}")
    return f"{name} saved"


@job(queue="resources")
async def fetch(
    name: str,
    client: Annotated[Pool, Resource(client)] = GIVEN,
    pool: Annotated[Pool, Resource(pool)] = GIVEN,
    state: Annotated[str, Resource(session)] = GIVEN,
) -> None:
    seen.append(f"{name} with {client.name}, {pool.name}, {state}")


@job(queue="resources")
def use_broken(broken: Annotated[None, Resource(broken)] = GIVEN) -> None: ...


class Save(Job):
    namespace = "resources"
    queue_name = "resources"
    keep_result = True

    def run(self, queue: Queue, pool: Annotated[Pool, Resource(pool)] = GIVEN, more: Nowhere = None) -> str:  # noqa: F821
        return f"{queue.name.hget()} with {pool.name}, {more}"


@worker_resource
async def slow() -> AsyncIterator[None]:
    yield
    await asyncio.sleep(60)


@job(queue="resources")
async def wait(it: Annotated[None, Resource(slow)] = GIVEN) -> None: ...


@job_resource
def swallowing() -> Iterator[None]:
    try:
        yield
    except BaseException:
        seen.append("rolled back")


@job(queue="resources")
def refuse(cancels: bool, it: Annotated[None, Resource(swallowing)] = GIVEN) -> None:
    raise Cancel("not now") if cancels else ValueError("bad")


@job(queue="resources")
async def refuse_async(cancels: bool, it: Annotated[None, Resource(swallowing)] = GIVEN) -> None:
    raise Cancel("not now") if cancels else ValueError("bad")


class Fetch(Job):
    namespace = "resources"
    queue_name = "resources"
    keep_result = True

    async def run(self, queue: Queue, *, client: Annotated[Pool, Resource(client)] = GIVEN) -> str:
        return client.name


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def run(number: int = 1, **options: Any) -> None:
    work("resources", callback=None, max_loops=number, **options)


def test_jobs_of_a_process_share_one_which_is_closed_at_its_end() -> None:
    added = [save.add("ann"), save.add("bob", times=2)]
    run(2)
    steps = ["ann 1 with pool, open, 1", "committed", "bob 2 with pool, open, 2", "committed"]
    assert seen == ["pool opened", *steps, "pool closed"]
    assert [each.result(0) for each in added] == ["ann saved", "bob saved"]


def test_another_worker_opens_it_anew() -> None:
    for _ in range(2):
        save.add("ann")
        run()
    assert seen.count("pool opened") == seen.count("pool closed") == 2


def test_one_of_a_job_sees_what_the_code_raises() -> None:
    save.add("bad")
    run()
    assert "rolled back: bad" in seen
    assert [error.message.hget() for error in Error.collection().instances()] == ["bad"]


def test_one_that_swallows_what_the_code_raises_does_not_make_it_a_success(caplog: pytest.LogCaptureFixture) -> None:
    added = [each.add(cancels) for each in (refuse, refuse_async) for cancels in (True, False)]
    run(4)
    assert [each.job.status.hget() for each in added] == [STATUSES.CANCELED, STATUSES.ERROR] * 2
    assert seen == ["rolled back"] * 4
    assert "one of its resources swallowed ValueError('bad')" in caplog.text


@pytest.mark.parametrize("options", [{}, {"concurrency": 2}], ids=["one after the other", "at once"])
def test_coroutines_have_asynchronous_ones_on_their_loop(options: dict[str, Any]) -> None:
    fetch.add("ann")
    fetch.add("bob")
    with working(worker_of("resources", callback=None, max_loops=2, **options)):
        pass
    assert seen.count("client opened") == seen.count("client closed") == seen.count("pool closed") == 1
    assert {"ann with client, pool, open", "bob with client, pool, open"} < {*seen}
    assert seen.count("session closed") == 2


def test_so_are_they_given_to_the_method_of_a_class() -> None:
    jobs = Save.add_job(), Fetch.add_job()
    run(2)
    assert [each.result(0) for each in jobs] == ["resources with pool, None", "client"]
    assert "client closed" in seen


def test_no_call_gives_them_and_none_is_stored() -> None:
    assert save.arguments_of("ann", 2) == {"name": "ann", "times": 2}
    with pytest.raises(TypeError, match="pool"):
        save.add("ann", pool=None)


def test_a_test_puts_another_value_in_its_place() -> None:
    with pool.override(Pool("fake")), transaction.override("fake"):
        run_job(save, name="ann")
        assert "ann 1 with fake, fake, 1" in seen
    assert "pool opened" not in seen


def test_code_of_an_application_gets_one_too() -> None:
    with pool.override(Pool("fake")):
        assert pool.get().name == "fake"
        assert asyncio.run(pool.aget()).name == "fake"
    with pytest.raises(ConfigurationException, match=r"await client\.aget\(\)"):
        client.get()


def test_one_that_cannot_be_closed_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    use_broken.add()
    save.add("ann")
    run(2)
    assert "pool closed" in seen
    assert "broken could not be closed" in caplog.text


def test_one_that_closes_slowly_is_given_up_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.running.event_loop.CLOSE_WITHIN", 0.05)
    wait.add()
    run()
    assert "slow did not close within 0.05 second of the end, and is given up" in caplog.text
    assert "Traceback" not in caplog.text


def test_what_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigurationException, match="yields it once"):
        worker_resource(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="is no resource"):
        Resource(Pool)

    def wrong(client: Annotated[Pool, Resource(client)] = GIVEN) -> None: ...

    wrong.__qualname__ = "wrong"
    with pytest.raises(ConfigurationException, match="has to be async"):
        job(wrong)


@pytest.mark.proof
def test_each_process_of_a_worker_has_its_own(redis_server: RedisServer, redis_client: redis.Redis, tmp_path) -> None:
    (tmp_path / "shop.py").write_text(
        """if True:
        import os
        import redis
        from typing import Annotated
        from limpyd_jobs import GIVEN, Resource, job, worker_resource

        gates = redis.Redis(unix_socket_path=os.environ["GATES"])

        @worker_resource
        def pid():
            gates.rpush("opened", os.getpid())
            yield os.getpid()
            gates.rpush("closed", os.getpid())

        @job(queue="resources")
        def note(number: int, pid: Annotated[int, Resource(pid)] = GIVEN) -> None:
            gates.rpush("noted", pid)
            gates.blpop("open", 60)
        """
    )
    environment = {**os.environ, "GATES": redis_server.socket, "LIMPYD_JOBS_DATABASE": redis_server.url}
    adding = "from shop import note; [note.add(number) for number in range(2)]"
    subprocess.run([sys.executable, "-c", adding], cwd=tmp_path, env=environment, check=True, timeout=60)
    command = [sys.executable, "-m", "limpyd_jobs.scripts.worker", "--queues=resources", "--processes=2"]
    worker = subprocess.Popen([*command, f"--pythonpath={tmp_path}"], cwd=tmp_path, env=environment)
    try:
        wait_until(lambda: redis_client.llen("noted") == 2)
        redis_client.rpush("open", 1, 2)
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()
    opened, closed, noted = ({*redis_client.lrange(key, 0, -1)} for key in ("opened", "closed", "noted"))
    assert opened == closed == noted
    assert len(opened) == 2
