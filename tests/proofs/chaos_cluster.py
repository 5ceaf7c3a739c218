"""Chaos on a Redis Cluster of three primaries, each with a replica, which has to copy a job before it is added.

Each server has a host of its own, and so has one half of the processes; the other half is on a second host. When the
network is split, the primary and that second host see each other, and no other one: its processes go on with a primary
that does not know that another server has its place by now. Without the rights to make such a network, all servers are
on this machine, and the network is not split.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from chaos import REMEMBERS_ALL, Chaos
from chaos_report import Fault
from redis.exceptions import RedisError
from servers import Cluster, ClusterServer, wait_until
from split_network import Network

from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.cluster.tags import slot_of

# How often each kind of fault comes up in a row of them.
FAULTS = {
    "kill_worker": 8,
    "kill_producer": 2,
    "stop_worker": 4,
    "end_worker": 4,
    "kill_client": 6,
    "kill_redis": 1,
    "kill_primary": 2,
    "stop_primary": 2,
    "split_network": 3,
    "fail_over": 2,
    "move_slot": 4,
}

NODE_TIMEOUT = 1_500  # milliseconds

# A primary that no replica hears takes no writes: see "What a failover loses".
NEEDS_A_REPLICA = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")

# In a cluster, Valkey 9 goes on with a WAIT when the primary is demoted: wrong if it is promoted again meanwhile.
REPLICA_TIMEOUT = 0.5  # seconds

TAG = "chaos"
SLOT = slot_of(TAG)

NEAR, FAR = "near", "far"  # the hosts of the processes


class ClusterChaos(Chaos):
    """The same, on a cluster. Its connections go to its servers, so none of them is cut within a reply."""

    def _enter(self, stack: ExitStack) -> list[str]:
        self._network = stack.enter_context(Network()) if Network.is_possible() else None
        if self._network:
            for host in (NEAR, FAR):
                self._network.add(host)
        else:
            self._tell("the network cannot be split: that needs root, on Linux")
        self._cluster = stack.enter_context(Cluster(self._binary, NODE_TIMEOUT, self._server_of))
        url = f"{self._cluster.url(TAG)}?wait_for_replicas=1&replica_timeout={REPLICA_TIMEOUT}"
        stack.callback(BaseJobsModel.database.reset)
        BaseJobsModel.database.from_url(url)
        self._clients = [BaseJobsModel.database.connection]
        return [url]

    def _server_of(self, binary: str, node_timeout: int) -> ClusterServer:
        server = ClusterServer(binary, node_timeout)
        server._command += [*REMEMBERS_ALL, *NEEDS_A_REPLICA]
        if self._network:
            server.host = self._network.add(str(server.port))
            server._command += ["--bind", server.host, "--protected-mode", "no"]
            server._command[:0] = self._network.command_on(str(server.port))
        return server

    def _command_of(self, number: int) -> list[str]:
        return self._network.command_on((NEAR, FAR)[number % 2]) if self._network else []

    def _are_jobs_left(self) -> bool:
        with suppress(RedisError):
            return super()._are_jobs_left()
        return True  # as far as is known: a server is away

    def _broken(self) -> list[str]:
        return [f"{each}" for each in self._answer_to(lambda: check(pause=0).findings)]

    def _records(self) -> Iterator[tuple[str, Any]]:
        yield from self._answer_to(lambda: [*super(ClusterChaos, self)._records()])

    def _answer_to(self, ask: Callable[[], Any]) -> Any:
        """Return what is read of the cluster, as soon as all of it can be read."""
        found: list[Any] = []

        def has_answered() -> bool:
            with suppress(RedisError):
                found.append(ask())
            return bool(found)

        wait_until(self._is_whole, "the cluster is whole")
        wait_until(has_answered, "the cluster answers")
        return found[0]

    # -- Faults

    def _kill_client(self) -> None:
        with suppress(RedisError), self._cluster.owner(SLOT).client() as client:
            own = client.client_id()
            others = [each["id"] for each in client.client_list() if each["flags"] in "Nb" and int(each["id"]) != own]
            if others:
                self._note("client killed")
                client.client_kill_filter(_id=self._hits.choice(others))

    def _kill_redis(self) -> None:
        """It is there again before it is missed."""
        owner = self._cluster.owner(SLOT)
        with self._lasting("primary restarted"):
            owner.kill()
            owner.start()

    def _kill_primary(self) -> None:
        owner = self._cluster.owner(SLOT)
        with self._lasting("primary killed"):
            owner.kill()
            self._await_successor(owner)
            owner.start()

    def _stop_primary(self) -> None:
        owner = self._cluster.owner(SLOT)
        assert owner.process
        with self._lasting("primary stopped"):
            owner.process.send_signal(signal.SIGSTOP)
            self._await_successor(owner)
            owner.process.send_signal(signal.SIGCONT)

    def _split_network(self) -> None:
        if self._network:
            owner = self._cluster.owner(SLOT)
            with self._lasting("network split"):
                self._network.cut_off([str(owner.port), FAR])
                try:
                    self._await_successor(owner)
                    time.sleep(self._hits.uniform(0, 3))
                finally:
                    self._network.heal()

    def _await_successor(self, owner: ClusterServer) -> None:
        """Wait until another server is the primary; every other time, a worker dies meanwhile."""
        if self._hits.random() < 0.5:
            self._kill_worker()
        wait_until(lambda: self._cluster.owner(SLOT, but=owner) is not owner, "a replica is the primary")

    def _fail_over(self) -> None:
        with self._lasting("failed over"):
            self._cluster.fail_over(self._cluster.owner(SLOT))

    def _move_slot(self) -> None:
        with self._lasting("slot moved"):
            self._cluster.move(SLOT)

    @contextmanager
    def _lasting(self, kind: str) -> Iterator[None]:
        """Note a fault that lasts until the cluster is whole again.

        On a busy machine, another server may count as dead in the midst of it, so that it cannot be done as meant. Then
        it is broken off, and what it left is mended.
        """
        begun = time.monotonic()
        try:
            yield
        except (RedisError, AssertionError) as error:
            self._tell(f"{kind}: broken off: {error}")
            self._mend()
        wait_until(self._is_whole, "the cluster is whole")
        self.faults.append(Fault(begun, kind, until=time.monotonic()))
        time.sleep(REPLICA_TIMEOUT)

    def _mend(self) -> None:
        """Let all servers be there again, and hear each other, and the slot be in one place."""
        if self._network:
            self._network.heal()
        for server in self._cluster.servers:
            if server.process:
                server.process.send_signal(signal.SIGCONT)
            else:
                server.start()
        wait_until(self._is_whole, "the cluster is whole")
        self._cluster.mend_move(SLOT)

    def _is_whole(self) -> bool:
        return self._cluster.is_whole() and self._cluster.is_settled()
