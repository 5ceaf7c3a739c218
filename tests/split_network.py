"""A network on this machine that can be split: each host is a network namespace, on one of two bridges. It needs root,
and Linux."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from ipaddress import IPv4Address

BRIDGE, CUT_OFF = "a", "b"  # the bridge of all hosts, and that of those that are cut off

# 198.18.0.0/15 is for tests of networks, as RFC 2544 says. Each process has 16 addresses of it.
FIRST, SIZE, PROCESSES = IPv4Address("198.18.0.0"), 16, 8192


class Network:
    """A network that exists inside a ``with``, with this machine itself as a host that is never cut off."""

    def __init__(self) -> None:
        self._prefix = f"lj{os.getpid() % 100_000}"
        self._subnet = FIRST + SIZE * (os.getpid() % PROCESSES)
        self._hosts: dict[str, int] = {}

    @staticmethod
    def is_possible() -> bool:
        """Whether namespaces and bridges can be made here."""
        try:
            with Network() as network:
                network.add("probe")
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def __enter__(self) -> Network:
        try:
            for bridge in (BRIDGE, CUT_OFF):
                _ip("link", "add", f"{self._prefix}{bridge}", "type", "bridge")
                _ip("link", "set", f"{self._prefix}{bridge}", "up")
            _ip("addr", "add", f"{self._subnet + 1}/28", "dev", f"{self._prefix}{BRIDGE}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for number in self._hosts.values():
            _ip("link", "del", f"{self._prefix}v{number}", check=False)
            _ip("netns", "del", f"{self._prefix}n{number}", check=False)
        for bridge in (BRIDGE, CUT_OFF):
            _ip("link", "del", f"{self._prefix}{bridge}", check=False)

    def add(self, host: str) -> str:
        """Make a host; return its address."""
        number = self._hosts[host] = len(self._hosts) + 2
        name, outside, inside = (f"{self._prefix}{each}{number}" for each in "nvi")
        _ip("netns", "add", name)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        _ip("link", "set", inside, "netns", name)
        _ip("link", "set", outside, "master", f"{self._prefix}{BRIDGE}", "up")
        _ip("-n", name, "addr", "add", f"{self._subnet + number}/28", "dev", inside)
        _ip("-n", name, "link", "set", inside, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        return f"{self._subnet + number}"

    def command_on(self, host: str) -> list[str]:
        """Return the words that run the command behind them on a host."""
        return ["ip", "netns", "exec", f"{self._prefix}n{self._hosts[host]}"]

    def cut_off(self, hosts: Iterable[str]) -> None:
        """Let some hosts reach each other only, and be reached by no other one. Packets are lost; connections stay."""
        self._plug(hosts, CUT_OFF)

    def heal(self) -> None:
        """Let all hosts reach each other."""
        self._plug(self._hosts, BRIDGE)

    def _plug(self, hosts: Iterable[str], bridge: str) -> None:
        for host in hosts:
            _ip("link", "set", f"{self._prefix}v{self._hosts[host]}", "master", f"{self._prefix}{bridge}")


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)
