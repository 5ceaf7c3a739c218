"""Telling the service manager the state of the service, by the protocol of `sd_notify`, as systemd reads it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

# How long to wait for a service manager that does not listen right now, in seconds.
NOTIFY_TIMEOUT = 1.0

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def notify(state: str) -> None:
    """Send a state, such as ``READY=1``, ``STOPPING=1`` or ``WATCHDOG=1``, if a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        if address.startswith("@"):  # the abstract namespace of Linux
            address = f"\0{address[1:]}"
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.settimeout(NOTIFY_TIMEOUT)
            client.connect(address)  # so that it waits for the manager, not for itself, to have room
            client.send(state.encode())


def watchdog_interval() -> float | None:
    """Return how many seconds to let pass between two ``WATCHDOG=1``; None if the service manager expects none."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    is_for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 2e6 if microseconds.isdecimal() and int(microseconds) and is_for_us else None
