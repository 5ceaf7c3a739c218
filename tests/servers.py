"""Real Redis servers for the tests: each in a temporary directory of its own, gone at the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from limpyd_jobs.redis.embedded import answers

TIMEOUT = 60  # seconds

# After how many seconds a replica has given up to take over, as if it had not been asked: others would not vote so soon
# after another failover.
FAILOVER_GIVEN_UP = 6.0

KEYS_AT_ONCE = 10  # to move, as redis-cli does

FIRST_PORT, LAST_PORT, SHARES = 10_000, 32_000, 16
_given_ports: set[int] = set()


def wait_until(condition: Callable[[], Any], what: str = "") -> None:
    """Return as soon as the condition holds.

    Raises
    ------
    AssertionError
        If it does not within a minute.
    """
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT} seconds: {what or condition}"
        time.sleep(0.01)


class RedisServer:
    """A server that runs between `start` and `stop`, or inside a ``with``.

    It listens on the unix socket `socket` and, if a `port` is given, on 127.0.0.1 too. Nothing is saved,
    unless more arguments (as on the command line of redis-server) say so; the data survives `stop` and
    `start` then.

    >>> with RedisServer("redis-server", "--maxmemory", "2mb") as server:
    ...     redis.Redis.from_url(server.url).ping()
    """

    def __init__(self, binary: str, *arguments: str, port: int = 0) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="limpyd-jobs-tests-"))
        self.socket = str(self.directory / "redis.sock")
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(binary, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket),
            *("--dir", str(self.directory), "--save", "", *arguments),
        ]

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self, **settings: Any) -> redis.Redis:
        """Return a new client of this server, which decodes what it gets."""
        return redis.Redis(unix_socket_path=self.socket, **{"decode_responses": True, **settings})

    def start(self) -> None:
        """Start the server, and return when it answers."""
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(self._answers, f"start of {self._command}")
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text(errors="replace")
        return answers(self.socket)

    def stop(self) -> None:
        """Ask the server to end (it saves what it was told to save), and wait for that."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait()
            self.process = None

    def __enter__(self) -> RedisServer:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()  # at once: a primary that is asked to end waits for its replicas
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class SentinelServer(RedisServer):
    """A Redis Sentinel, the only one, that watches one primary on 127.0.0.1 under the name ``jobs``."""

    def __init__(self, binary: str, primary_port: int, *settings: str) -> None:
        super().__init__(binary, port=free_port())
        configuration = self.directory / "sentinel.conf"
        monitored = [f"monitor jobs 127.0.0.1 {primary_port} 1", "down-after-milliseconds jobs 500", *settings]
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", f"unixsocket {self.socket}"]
        configuration.write_text("\n".join([*lines, *(f"sentinel {line}" for line in monitored), ""]))
        self._command = [binary, str(configuration), "--sentinel"]


def certificate_in(directory: Path) -> tuple[str, ...]:
    """Make a certificate for localhost, ``server.pem``, with ``key.pem``, or skip the test.

    Return how a server is given both.
    """
    certificate, key = directory / "server.pem", directory / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]  # a key of RSA takes a fifth of a second
    make = ["openssl", "req", "-x509", *kind, "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run([*make, *names, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate")
    return ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-auth-clients", "no")


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses, and that no other test nor the system gives to anybody else.

    Systems give those from 32768 on; and each process of pytest-xdist has its own share of the others.
    """
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SHARES
    while True:
        port = FIRST_PORT + share + SHARES * random.SystemRandom().randrange((LAST_PORT - FIRST_PORT) // SHARES)
        with socket.socket() as probe, suppress(OSError):
            if port not in _given_ports:
                probe.bind(("127.0.0.1", port))
                _given_ports.add(port)
                return port


def _free_port_with_bus() -> int:
    """Return a free port; the servers of a cluster talk to each other on the one that is 10,000 higher, which is no
    more given to others, either."""
    while True:
        port = free_port()
        bus = port + 10_000
        if bus < LAST_PORT and bus not in _given_ports:
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", bus))
                _given_ports.add(bus)
                return port


def refuse_all(client: redis.Redis) -> None:
    """Let Redis refuse all reads and writes: as a replica, without its data, of a primary that is not there."""
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", str(free_port()))


def refuse_nothing(client: redis.Redis) -> None:
    client.replicaof("NO", "ONE")
    client.config_set("replica-serve-stale-data", "yes")


class ClusterServer(RedisServer):
    """A server of a `Cluster`."""

    host = "127.0.0.1"

    def __init__(self, binary: str, node_timeout: int) -> None:
        more = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout))
        quick = ("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0")
        super().__init__(binary, *more, *quick, port=_free_port_with_bus())

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


class ClusterOfOne(ClusterServer):
    """A cluster of one server, which has all slots."""

    def __init__(self, binary: str, *arguments: str, is_tls: bool = False) -> None:
        super().__init__(binary, node_timeout=15_000)
        self._command += [*arguments, *(("--port", "0", "--tls-port", str(self.port)) if is_tls else ())]

    def start(self) -> None:
        super().start()
        with self.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: _info(client)["cluster_state"] == "ok", "the cluster is whole")


def _info(client: redis.Redis) -> dict[str, str]:
    """Return what a server tells of its cluster: redis-py reads it, or does not, by its version."""
    told = client.execute_command("CLUSTER", "INFO")
    return told if isinstance(told, dict) else dict(line.split(":", 1) for line in told.split())


class Cluster:
    """A Redis Cluster of three primaries, each with a replica, inside a ``with``. A server that is silent for longer
    than the `node_timeout`, in milliseconds, counts as dead: on a busy machine, too."""

    def __init__(
        self, binary: str, node_timeout: int = 15_000, make: Callable[..., ClusterServer] = ClusterServer
    ) -> None:
        self.servers = [make(binary, node_timeout) for _ in range(6)]

    def __enter__(self) -> Cluster:
        try:
            for server in self.servers:
                server.start()
            self._join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self.servers:
            server.kill()
            server.remove()

    def _join(self) -> None:
        for number, server in enumerate(self.servers[:3]):
            with server.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                last = 16383 if number == 2 else 5461 * (number + 1) - 1
                client.execute_command("CLUSTER", "ADDSLOTS", *range(5461 * number, last + 1))
        first, *others = self.servers
        with first.client() as client:
            for each in others:
                client.execute_command("CLUSTER", "MEET", *each.address)
        wait_until(lambda: all(len(self.ids(each)) == 6 for each in self.servers), "all servers know each other")
        for primary, replica in zip(self.servers[:3], self.servers[3:], strict=True):
            with replica.client() as client:
                wait_until(lambda: _follows(client, self.id_of(primary)), "a replica follows")  # noqa: B023
        wait_until(self.is_whole, "the cluster is whole")

    def ids(self, server: ClusterServer) -> dict[int, str]:
        """Return the ids of all servers, by port, as one knows them."""
        with server.client() as client:
            found = client.execute_command("CLUSTER", "NODES")
        lines = found.splitlines() if isinstance(found, str) else [f"{v['node_id']} {k}" for k, v in found.items()]
        return {int(line.split()[1].partition("@")[0].rpartition(":")[2]): line.split()[0] for line in lines}

    def id_of(self, server: ClusterServer) -> str:
        with server.client() as client:
            return str(client.execute_command("CLUSTER", "MYID"))

    def is_whole(self) -> bool:
        """Whether all servers say that all slots are served, and all replicas are in sync: not if one is away."""
        with suppress(redis.RedisError):
            return all(map(self._is_well, self.servers))
        return False

    def _is_well(self, server: ClusterServer) -> bool:
        with server.client() as client:
            state = _info(client)["cluster_state"]
            replication = client.info("replication")
            in_sync = replication["role"] == "master" or replication["master_link_status"] == "up"
        return bool(state == "ok" and in_sync)

    def url(self, tag: str) -> str:
        first, second = (f"{each.host}:{each.port}" for each in self.servers[:2])
        return f"redis+cluster://{first},{second}/{tag}"

    def owner(self, slot: int, but: ClusterServer | None = None) -> ClusterServer:
        """Return the primary that has a slot, as the first server says that runs and knows, but not that one.

        There may be none for a while: a server that has just been started does not answer yet, or knows of no slots.
        """
        found: list[ClusterServer] = []

        def is_known() -> bool:
            found.extend(self._named_owners(slot, but))
            return bool(found)

        wait_until(is_known, f"a server knows who has slot {slot}")
        return found[0]

    def _named_owners(self, slot: int, but: ClusterServer | None) -> Iterator[ClusterServer]:
        for asked in self.servers:
            with suppress(redis.RedisError):
                if asked.process and asked is not but:
                    with asked.client() as client:
                        ports = {primary[1] for first, last, primary, *_ in _slots(client) if first <= slot <= last}
                    yield from (each for each in self.servers if each.port in ports)

    def other(self, owner: ClusterServer) -> ClusterServer:
        """Return another primary."""
        with owner.client() as client:
            owners = {primary[1] for _, _, primary, *_ in _slots(client)}
        return next(each for each in self.servers if each.port in owners and each is not owner)

    def fail_over(self, owner: ClusterServer) -> None:
        """Let the replica of a primary take over, as for an upgrade."""
        told: dict[str, Any] = {}

        def has_replica() -> bool:
            with owner.client() as client:
                told.update(client.info("replication"))
            return "slave0" in told or told["role"] != "master"

        wait_until(has_replica, "the primary has a replica")
        if told["role"] != "master":  # its replica has taken over meanwhile
            return
        replica = told["slave0"]["port"]
        asked: list[float] = []
        with next(each for each in self.servers if each.port == replica).client() as client:

            def has_taken_over() -> bool:
                if not asked or time.monotonic() > asked[-1] + FAILOVER_GIVEN_UP:
                    with suppress(redis.ResponseError):  # it does not hear the primary, or has just taken over
                        client.execute_command("CLUSTER", "FAILOVER")
                    asked.append(time.monotonic())
                return bool(client.role()[0] == "master")

            wait_until(has_taken_over, "the replica is the primary")
        wait_until(self.is_whole, "the old primary follows")

    def begin_move(self, slot: int, to: ClusterServer) -> ClusterServer:
        """Begin to move a slot to another primary; return the one that has it."""
        source = self.owner(slot)
        with source.client() as left, to.client() as right:
            right.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
            left.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        return source

    def move_keys(self, source: ClusterServer, to: ClusterServer, keys: Iterable[str]) -> None:
        left = list(keys)
        with source.client() as client:
            for i in range(0, len(left), KEYS_AT_ONCE):
                some = left[i : i + KEYS_AT_ONCE]
                client.execute_command("MIGRATE", *to.address, "", 0, 5000, "KEYS", *some)

    def keys_in(self, server: ClusterServer, slot: int) -> list[str]:
        with server.client() as client:
            return list(client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100_000))

    def give_up_move(self, slot: int, source: ClusterServer, to: ClusterServer) -> None:
        """Leave a slot where it was, and put back the keys that have moved."""
        self._keep(slot, source)
        self.move_keys(to, source, self.keys_in(to, slot))
        self._keep(slot, to)

    def mend_move(self, slot: int) -> None:
        """Leave a slot, whose move may have been broken off, to the primary that has it, with all its keys."""
        owner = self.owner(slot)
        for each in self.servers:
            with each.client() as client:
                is_primary = client.role()[0] == "master"
            if is_primary and each is not owner:
                self.give_up_move(slot, owner, each)

    def _keep(self, slot: int, server: ClusterServer) -> None:
        with server.client() as client:
            client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")

    def stored_in(self, server: ClusterServer, slot: int) -> dict[str, bytes]:
        """Return what a server has in the keys of a slot, also while it is moved there."""
        keys = self.keys_in(server, slot)
        with server.client(decode_responses=False) as client:
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.execute_command("ASKING")
                pipe.dump(key)
            return dict(zip(keys, pipe.execute()[1::2], strict=True))

    def end_move(self, slot: int, to: ClusterServer) -> None:
        """Let a slot belong to another primary, for all."""
        for server in (to, *(each for each in self.servers if each is not to)):
            with server.client() as client, suppress(redis.ResponseError):  # replicas refuse
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    def is_settled(self) -> bool:
        """Whether all servers know of all changes of slots. Another change before may leave a slot to no server."""
        with suppress(redis.RedisError):
            told = [self._told_by(server) for server in self.servers if server.process]
            epochs = {each["cluster_my_epoch"] for each in told}  # a replica has that of its primary
            return len({each["cluster_current_epoch"] for each in told}) == 1 and len(epochs) == 3
        return False

    def _told_by(self, server: ClusterServer) -> dict[str, str]:
        with server.client() as client:
            return _info(client)

    def move(self, slot: int) -> None:
        """Move a slot, with its keys, to another primary."""
        wait_until(self.is_settled, "all servers agree")
        to = self.other(self.owner(slot))
        source = self.begin_move(slot, to)
        while keys := self.keys_in(source, slot):
            self.move_keys(source, to, keys)
        self.end_move(slot, to)


def _slots(client: redis.Redis) -> Any:
    connection: Any = client.connection_pool.make_connection()
    try:
        connection.connect()
        connection.send_command("CLUSTER", "SLOTS")
        return connection.read_response()
    finally:
        connection.disconnect()


def _follows(client: redis.Redis, primary: str) -> bool:
    with suppress(redis.ResponseError):
        client.execute_command("CLUSTER", "REPLICATE", primary)
        return True
    return False
