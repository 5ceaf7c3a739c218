"""What answers the awaitable methods: one connection of a loop, which all its tasks share."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import RedisServer, certificate_in, free_port, wait_until

from limpyd_jobs import ConfigurationException, Job
from limpyd_jobs.redis import multiplexed
from limpyd_jobs.redis.awaiting import finished, in_thread
from limpyd_jobs.redis.calls import Commands, Steps
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.lines import line_to


class Letter(Job):
    namespace = "awaiting"
    queue_name = "letters"


@pytest.fixture
def database(redis_client: redis.Redis, redis_server: RedisServer) -> JobsDatabase:
    return JobsDatabase(unix_socket_path=redis_server.socket)


@pytest.fixture
def own_server(redis_binary: str) -> Iterator[RedisServer]:
    with RedisServer(redis_binary, port=free_port()) as server:
        yield server


async def ask(database: JobsDatabase, *words: Any) -> Any:
    (reply,) = await line_to(database.connection).execute(words)
    return reply


def connections(client: redis.Redis) -> set[int]:
    return {int(each["id"]) for each in client.client_list(_type="normal")}


def test_a_hundred_tasks_share_one_connection(database: JobsDatabase) -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        replies = await asyncio.gather(*(ask(database, "ECHO", f"{i}") for i in range(100)))
        return replies, await asyncio.gather(*(ask(database, "CLIENT", "ID") for _ in range(100)))

    replies, connected = asyncio.run(main())
    assert (replies, len({*connected})) == ([f"{i}" for i in range(100)], 1)


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_texts_of_any_size_come_back(database: JobsDatabase, size: int) -> None:
    text = "é\udcff"[: max(size, 0)] + "x" * size

    async def main() -> list[Any]:
        return await asyncio.gather(*(ask(database, "ECHO", text + f"{i}") for i in range(5)))

    assert asyncio.run(main()) == [text + f"{i}" for i in range(5)]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_all_kinds_of_replies_are_read_in_whatever_pieces_they_come(
    database: JobsDatabase, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    read = multiplexed.Wire.data_received

    def read_in_pieces(wire: multiplexed.Wire, data: bytes) -> None:
        for start in range(0, len(data), size):
            read(wire, data[start : start + size])

    monkeypatch.setattr(multiplexed.Wire, "data_received", read_in_pieces)

    async def main() -> list[Any]:
        script = (
            "return {1, 'a\\r\\n', {}, {false, {'b', {}}}, redis.status_reply('fine'), redis.error_reply('ERR no')}"
        )
        found = await ask(database, "EVAL", script, 0)
        return [*found, await ask(database, "GET", "nothing"), await ask(database, "BLPOP", "nothing", "0.05")]

    *values, error, nothing, none = asyncio.run(main())
    assert values == [1, "a\r\n", [], [None, ["b", []]], "fine"]
    assert (type(error), str(error)) == (redis.ResponseError, "no")
    assert (nothing, none) == (None, None)


def test_commands_of_steps_are_read_as_redis_py_does(database: JobsDatabase) -> None:
    def steps() -> Steps[list[Any]]:
        return (yield Commands(database.connection, [("SADD", "s", "a"), ("SSCAN", "s", 0), ("GET", "s")]))

    added, scanned, refused = asyncio.run(finished(steps()))
    assert (added, scanned) == (1, (0, ["a"]))
    assert isinstance(refused, redis.ResponseError)


def test_a_canceled_task_gets_no_reply_and_leaves_none_to_others(database: JobsDatabase) -> None:
    async def main() -> list[Any]:
        tasks = [asyncio.create_task(ask(database, "ECHO", f"{i}")) for i in range(200)]
        chosen = random.Random(7).sample(tasks, 100)
        while not any(task.done() for task in tasks):
            for task in chosen[:10]:
                task.cancel()
            await asyncio.sleep(0)
        for task in chosen:
            task.cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        replies.append(await ask(database, "ECHO", "200"))
        return replies

    replies = asyncio.run(main())
    assert all(reply in (f"{i}",) or isinstance(reply, asyncio.CancelledError) for i, reply in enumerate(replies))
    assert replies[-1] == "200"


def test_it_connects_again_after_the_server_ended(own_server: RedisServer) -> None:
    database = JobsDatabase(host="127.0.0.1", port=own_server.port)

    async def main() -> None:
        assert await ask(database, "PING") == "PONG"
        blocked = asyncio.create_task(ask(database, "BLPOP", "nothing", 0))
        await asyncio.sleep(0)
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            await blocked
        with pytest.raises(redis.ConnectionError):
            await ask(database, "PING")
        await asyncio.to_thread(own_server.start)
        assert await ask(database, "PING") == "PONG"
        own_server.kill()
        await asyncio.to_thread(own_server.start)
        await asyncio.sleep(0.01)
        assert await ask(database, "PING") == "PONG"  # it saw the end while idle

    asyncio.run(main())


def test_a_silent_server_times_out(own_server: RedisServer) -> None:
    database = JobsDatabase(host="127.0.0.1", port=own_server.port, socket_timeout=0.2)

    async def main() -> None:
        assert await ask(database, "PING") == "PONG"
        assert own_server.process
        own_server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(redis.TimeoutError):
                await ask(database, "PING")
        finally:
            own_server.process.send_signal(signal.SIGCONT)
        while True:
            try:
                assert await ask(database, "PING") == "PONG"
                return
            except redis.TimeoutError:  # it was slow to go on
                pass

    asyncio.run(main())


def test_a_server_that_is_no_primary_any_more_is_left(own_server: RedisServer) -> None:
    database = JobsDatabase(host="127.0.0.1", port=own_server.port)

    async def main() -> None:
        before = await ask(database, "CLIENT", "ID")
        await ask(database, "REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(redis.ConnectionError, match="READONLY, so the connection is dropped"):
            await ask(database, "SET", "a", "b")
        assert await ask(database, "CLIENT", "ID") != before

    asyncio.run(main())


def test_the_end_of_the_loop_closes_the_connection(database: JobsDatabase, redis_client: redis.Redis) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what tests before it left
        warnings.simplefilter("error")
        connection = asyncio.run(ask(database, "CLIENT", "ID"))
        gc.collect()
    wait_until(lambda: connection not in connections(redis_client))


def test_aclose_closes_it_and_the_next_call_opens_another(database: JobsDatabase, redis_client: redis.Redis) -> None:
    async def main() -> None:
        first = await ask(database, "CLIENT", "ID")
        await database.aclose()
        await database.aclose()
        while first in connections(redis_client):
            await asyncio.sleep(0)
        assert await ask(database, "CLIENT", "ID") != first

    asyncio.run(main())


def test_tasks_that_clean_up_at_the_end_of_the_loop_still_reach_redis(
    database: JobsDatabase, redis_client: redis.Redis
) -> None:
    async def stand() -> None:
        try:
            await ask(database, "BLPOP", "nothing", 0.05)
        finally:
            await ask(database, "SET", "cleaned", "up")

    async def main() -> None:
        task = asyncio.create_task(stand())
        await ask(database, "PING")
        task.get_name()

    asyncio.run(main())
    assert redis_client.get("cleaned") == "up"


def test_each_loop_has_a_connection_of_its_own(database: JobsDatabase) -> None:
    def number(_: int) -> Any:
        return asyncio.run(ask(database, "CLIENT", "ID"))

    with ThreadPoolExecutor(4) as pool:
        numbers = [*pool.map(number, range(8))]
    assert len({*numbers}) == 8


def test_a_forked_child_leaves_the_connection_of_its_parent_alone(database: JobsDatabase) -> None:
    async def main() -> None:
        number = await ask(database, "CLIENT", "ID")
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                asyncio.events._set_running_loop(None)
                own = threading.Thread(
                    target=lambda: os.write(write, b"%d" % asyncio.run(ask(database, "CLIENT", "ID")))
                )
                own.start()
                own.join()
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        assert int(os.read(read, 100)) != number
        os.close(read)
        assert await ask(database, "CLIENT", "ID") == number

    asyncio.run(main())


def test_a_pause_of_the_server_holds_back_who_sends(database: JobsDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = []
    pause = multiplexed.Wire.pause_writing
    monkeypatch.setattr(multiplexed.Wire, "pause_writing", lambda self: (paused.append(1), pause(self)))

    async def main() -> list[Any]:
        text = "x" * 1_000_000
        return await asyncio.gather(
            *(ask(database, "STRLEN", text), *(ask(database, "SET", i, text) for i in range(30)))
        )

    assert asyncio.run(main())[1:] == ["OK"] * 30
    assert paused


@pytest.mark.parametrize(("seconds", "pieces"), [(-1.0, 10), (inf, 1)])
def test_commands_wait_for_those_of_other_tasks_for_some_time_only(
    seconds: float, pieces: int, database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    flush = multiplexed.Wire._flush

    def counted(wire: multiplexed.Wire) -> None:
        sent.extend([len(wire._outgoing)] if wire._outgoing else [])
        flush(wire)

    async def main() -> list[Any]:
        await ask(database, "PING")
        sent.clear()
        return await asyncio.gather(*(ask(database, "ECHO", f"{number}") for number in range(10)))

    monkeypatch.setattr(multiplexed, "SEND_AFTER", seconds)
    monkeypatch.setattr(multiplexed.Wire, "_flush", counted)
    assert asyncio.run(main()) == [f"{number}" for number in range(10)]
    assert len(sent) == pieces


def test_without_a_loop_of_asyncio_it_says_what_to_do(database: JobsDatabase) -> None:
    trio = pytest.importorskip("trio")
    with pytest.raises(ConfigurationException, match=r"need an event loop of asyncio .* Trio has none"):
        trio.run(ask, database, "PING")
    with pytest.raises(ConfigurationException, match="Trio has none"):
        trio.run(Letter.aadd_job, "a")
    with pytest.raises(ConfigurationException, match="Trio has none"):
        trio.run(in_thread, lambda: 1)


def test_the_setting_retry_is_followed(own_server: RedisServer) -> None:
    from redis.backoff import ConstantBackoff
    from redis.retry import Retry

    own_server.kill()
    database = JobsDatabase(host="127.0.0.1", port=own_server.port, retry=Retry(ConstantBackoff(0.01), 10_000))

    async def main() -> None:
        asked = asyncio.create_task(ask(database, "PING"))
        await asyncio.to_thread(own_server.start)
        assert await asked == "PONG"

    asyncio.run(main())


def test_a_server_that_is_too_old_is_refused(database: JobsDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.redis.servers.OLDEST_REDIS", (99, 0))
    with pytest.raises(ConfigurationException, match=r"Redis 99.0 or newer is needed"):
        asyncio.run(ask(database, "PING"))


def test_an_embedded_server_is_reached(tmp_path: Path) -> None:
    database = JobsDatabase(embedded=str(tmp_path))
    assert asyncio.run(ask(database, "PING")) == "PONG"
    database.reset()


class TlsProxy:
    """Takes TLS on a port, and hands on what it gets to a unix socket."""

    def __init__(self, target: str, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._target, self._ready = target, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _serve(self, reader: Any, writer: Any) -> None:
        to_read, to_write = await asyncio.open_unix_connection(self._target)

        async def copy(source: Any, target: Any) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            finally:
                target.close()

        await asyncio.gather(copy(reader, to_write), copy(to_read, writer), return_exceptions=True)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


@pytest.fixture
def tls_url(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> Iterator[str]:
    certificate_in(tmp_path)
    certificate = tmp_path / "server.pem"
    proxy = TlsProxy(redis_server.socket, certificate, tmp_path / "key.pem")
    yield f"rediss://127.0.0.1:{proxy.port}?ssl_ca_certs={certificate}"
    proxy.close()


def test_it_speaks_tls(tls_url: str) -> None:
    database = JobsDatabase(url=tls_url)

    async def main() -> list[Any]:
        return await asyncio.gather(*(ask(database, "ECHO", "x" * size) for size in (0, 1, 100_000, 1_000_000)))

    assert [len(each) for each in asyncio.run(main())] == [0, 1, 100_000, 1_000_000]


def test_it_does_not_trust_an_unknown_certificate(tls_url: str) -> None:
    with pytest.raises(redis.ConnectionError):
        asyncio.run(ask(JobsDatabase(url=tls_url.partition("?")[0]), "PING"))


def test_what_is_not_redis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(redis.RedisError):
            asyncio.run(ask(JobsDatabase(host="127.0.0.1", port=server.getsockname()[1]), "PING"))
