"""``limpyd-jobs top``, as a user sees it on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import preloaded
import pytest
from limpyd import fields
from servers import RedisServer, wait_until

from limpyd_jobs import Flow, Job, Limit, Queue, Worker, WorkerPresence
from limpyd_jobs.commands.screen.keyboard import keys_of
from limpyd_jobs.query import pause_queue, paused_queues
from limpyd_jobs.records import presences

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


# A class that the command can import.
Ticket = Job


def run(job: Job, queue: Queue) -> None:
    if job.identifier.hget().startswith("wrong"):
        raise ValueError("on purpose")


def work(number: int) -> None:
    Worker("tickets", callback=run, max_loops=number, logger_level=60, terminate_gracefuly=False).run()


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for name in ("right", "wrong", "next", "last"):
        Ticket.add_job(name, "tickets")
    work(2)


def environment(server: RedisServer) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**own, "LIMPYD_JOBS_DATABASE": server.url, "TERM": "xterm", "LC_ALL": "C.UTF-8"}


class Terminal:
    """A terminal in which top runs: what it shows is kept as the lines of its screen."""

    def __init__(self, server: RedisServer, options: list[str], size: tuple[int, int], **others: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.modes = termios.tcgetattr(self.theirs)
        self.resize(size)
        self.env = {**environment(server), **others}
        self.options = {"env": self.env, "stdin": self.theirs, "stdout": self.theirs, "stderr": self.theirs}
        self.process = subprocess.Popen([*options, "top", "--every=0.1"], **self.options)
        self.shown = ""

    def resize(self, size: tuple[int, int]) -> None:
        width, height = size
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def shows(self, *texts: str) -> bool:
        """Whether all these texts are, or were, on the screen."""
        self._read()
        return all(text in self.plain for text in texts)

    def has(self, *texts: str) -> bool:
        """Whether all these texts are on the screen now."""
        self._read()
        return all(text in "\n".join(self.lines) for text in texts)

    def _read(self) -> None:
        self.shown += os.read(self.ours, 65536).decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The screen, as it was drawn last as a whole: each time, it is drawn from its first line."""
        frames = self.shown.split("\x1b[H")
        return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in frames[-2].split("\r\n")]

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown)


WIDE, SMALL = (120, 40), (80, 24)


@contextmanager
def top(
    server: RedisServer, options: list[str] | None = None, size: tuple[int, int] = WIDE, **others: str
) -> Iterator[Terminal]:
    terminal = Terminal(server, options or [COMMAND], size, **others)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)
        os.close(terminal.theirs)


RUN_PLAIN = "import sys; sys.modules['rich'] = None; from limpyd_jobs.scripts.jobs import main; main()"
PLAIN = [sys.executable, "-c", RUN_PLAIN]


def test_what_is_worst_is_first_and_is_opened_paused_and_requeued_by_keys(redis_server: RedisServer) -> None:
    for number in range(3):
        Ticket.add_job(f"wrong {number}", "tickets")
    work(5)
    Ticket.add_job("waits", "zzz-others")
    Ticket.add_job("waits, too", "aaa-others")
    with top(redis_server, size=SMALL) as screen:
        wait_until(lambda: screen.has("✕ 2 problems", "4 jobs of tickets failed", "q end"))
        worst, message = screen.lines[3:5]
        assert worst.endswith("p Pause tickets")
        assert message.strip() == "ValueError: on purpose"
        queues = [line for line in screen.lines if line.startswith("✕  ")]
        assert [line.split()[1] for line in queues] == ["tickets", "aaa-others", "zzz-others"]
        assert max(map(len, screen.lines)) <= 80
        screen.type("\r")
        wait_until(lambda: screen.has("attention > incident", "limpyd-jobs queues pause tickets"))
        screen.type("\x1b")
        wait_until(lambda: not screen.has("attention >"))
        screen.type("p")
        wait_until(lambda: screen.has("Pause tickets?", "y yes"))
        screen.type("n")
        wait_until(lambda: screen.has("nothing was done"))
        assert not paused_queues()
        screen.type("py")
        wait_until(lambda: screen.has("1 queue paused", "Unpause tickets"))
        assert paused_queues() == {("jobs:queue", "tickets")}
        screen.type("r")
        wait_until(lambda: screen.has("Requeue 4 jobs of ValueError in tickets, which still fails, at 50/s"))
        screen.type("s")
        wait_until(lambda: screen.has("at 50/s?", "s stop if many fail again"))
        screen.type("s\x7f\x7f9")
        wait_until(lambda: screen.has("at 9/s, until"))
        screen.type("y")
        wait_until(lambda: screen.has("requeue: ") and not Ticket.collection(status="e").instances())
        pause_queue("jobs:queue", "tickets", pauses=False)
        work(4)
        wait_until(lambda: screen.has("4 jobs requeued: ", "4 failed again"))
        screen.type("/zzz")
        wait_until(lambda: screen.has("/zzz", "zzz-others") and not screen.has("aaa-others"))
        screen.type("\r\x1b")
        wait_until(lambda: screen.has("aaa-others"))
        screen.resize(WIDE)
        screen.process.send_signal(signal.SIGWINCH)
        wait_until(lambda: screen.has("95 % waited") and len(screen.lines) == 40)
        screen.type("q")
        assert screen.process.wait(20) == 0
        assert termios.tcgetattr(screen.theirs) == screen.modes


@pytest.mark.proof
def test_a_job_that_runs_is_opened_with_its_progress_and_why_it_runs(
    redis_server: RedisServer, busy: Callable[[], str]
) -> None:
    name = busy()
    Ticket.collection(identifier="next").instances()[0].progress(0.5, "half of it")
    with top(redis_server, size=SMALL, NO_COLOR="1") as screen:
        wait_until(lambda: screen.has("tickets"))
        screen.type("w")
        wait_until(lambda: screen.has(name.rpartition(":")[0], "busy", "Job:3"))
        screen.type("\x1b")
        wait_until(lambda: not screen.has("attention >"))
        screen.type("s")
        wait_until(lambda: screen.has("sorted by"))
        screen.type("/tickets\r\x1b[F\r")
        wait_until(lambda: screen.has("attention > queue tickets", "██████░░░░░░ 50% half of it"))
        screen.type("j\r")
        wait_until(lambda: screen.has("Job:3  running", "identifier: next", "It runs, since "))
        assert not re.search(r"\x1b\[[0-9;]*3[0-9][;m]", screen.shown)  # no colour
        screen.type("?")
        wait_until(lambda: screen.has("Nothing is changed before you have answered with y."))


class Voucher(Job):
    namespace = "top-limits"
    queue_name = "top-limits"
    customer = fields.InstanceHashField()
    limits = [Limit("customer", concurrency=1)]


def test_limits_and_flows_are_opened_with_what_waits_for_them(redis_server: RedisServer) -> None:
    first, _ = (Voucher.add_job(customer="acme") for _ in range(2))
    with first.claim(), top(redis_server, size=SMALL) as screen:
        Worker("top-limits", max_loops=1, timeout=0.1, max_duration=0.3, logger_level=60).run()
        with Flow("night") as flow:
            flow.add(Voucher.prepare(customer="b"), after=[flow.add(Voucher.prepare(customer="a"))])
        wait_until(lambda: screen.has("top-limits"))
        screen.type("l")
        wait_until(lambda: screen.has("attention > limits", "customer=acme", "1 of 1", "full"))
        screen.type("\r")
        wait_until(lambda: screen.has("customer=acme  1 running, 1 waiting", first.ident, "held by"))
        screen.type("\x1b")
        wait_until(lambda: screen.has("attention > limits") and not screen.has("held by"))
        screen.type("\x1bf")
        wait_until(lambda: screen.has("attention > flows", "night", "0 of 2"))
        screen.type("\r")
        wait_until(lambda: screen.has("flow night", "waiting for others"))


class Keyed(Job):
    namespace = "top-secrets"
    queue_name = "top-secrets"
    api_key = fields.InstanceHashField()
    limits = [Limit("api_key", concurrency=1)]


def test_the_value_of_a_secret_field_is_masked_in_limits(redis_server: RedisServer) -> None:
    with Keyed.add_job(api_key="K-123").claim(), top(redis_server, size=SMALL) as screen:
        wait_until(lambda: screen.has("top-secrets"))
        screen.type("l")
        wait_until(lambda: screen.has("attention > limits", "api_key=", "1 of 1"))
        assert "K-123" not in screen.shown
        screen.type("\r")
        wait_until(lambda: screen.has("held by"))
        assert "K-123" not in screen.shown


def test_keys_are_told_from_what_a_terminal_sends() -> None:
    sent = "j\x1b[A\x1bOB\x1b[6~\r\x7f\x1b[1;5Cé\x1b[200~\x1b"
    assert [*keys_of(sent)] == ["j", "up", "down", "page down", "enter", "backspace", "é", "escape"]


@pytest.mark.proof
@pytest.mark.parametrize("end", ["Q", "Ctrl-C"])
def test_top_without_rich_fills_a_terminal_until_q_or_ctrl_c(redis_server: RedisServer, end: str) -> None:
    with top(redis_server, PLAIN) as terminal:
        wait_until(lambda: terminal.shows("begun/min", "tickets", "identifier", "(q or Ctrl-C ends)"))
        assert termios.tcgetattr(terminal.theirs) != terminal.modes
        terminal.type("x")
        if end == "Ctrl-C":
            terminal.process.send_signal(signal.SIGINT)
        else:
            terminal.type(end)
        assert terminal.process.wait(20) == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.modes


@pytest.mark.proof
def test_top_needs_no_keyboard(redis_server: RedisServer) -> None:
    with top(redis_server, ["sh", "-c", f'exec "{COMMAND}" "$1" "$2" < /dev/null', "sh"]) as terminal:
        wait_until(lambda: terminal.shows("tickets", "(Ctrl-C ends)"))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(20) == 0


@pytest.mark.proof
def test_top_keeps_names_whole_in_a_small_terminal(redis_server: RedisServer, busy: Callable[[], str]) -> None:
    name = busy()
    with top(redis_server, PLAIN, SMALL) as terminal:
        wait_until(lambda: terminal.shows(f"{name}  busy", f"{Ticket.get_model_repr()}:3  next", "failed/min"))
        assert "memory" not in terminal.plain.partition("no room for")[0]


@pytest.mark.proof
def test_top_calls_a_worker_silent_that_gives_no_sign_of_life(redis_server: RedisServer, redis_client: Any) -> None:
    Ticket.collection(identifier="next").instances()[0].claim("web1:17:aaaaaaaaaaaa")
    job = [f"{Ticket.get_model_repr()}:3", "next", "2026-01-01 00:00:00"]
    details = {"queues": ["tickets"], "queue_model": "jobs:queue", "lease": 60, "status": "busy", "running": [job]}
    fields = {"kind": "worker", "name": "web1:17:aaaaaaaaaaaa", "host": "h", "pid": "1", "details": json.dumps(details)}
    presences.keep(WorkerPresence, "worker-a", fields, 60, redis_client, takes_orders="1")
    redis_client.zadd("jobs:workerpresence:leases", {"worker-a": redis_client.time()[0] + 35})
    with top(redis_server, PLAIN) as terminal:
        wait_until(lambda: terminal.shows("web1:17:aaaaaaaaaaaa has been silent for ", "; its lease ends in "))
        assert "busy" not in terminal.plain
        (line,) = {line.rstrip() for line in terminal.plain.splitlines() if line.startswith(f"{job[0]}  next")}
        assert line.split()[-1] == "silent"


@pytest.mark.proof
def test_many_queues_are_scrolled_through(redis_server: RedisServer) -> None:
    for number in range(30):
        Queue.get_queue(f"queue {number:02}")
    with top(redis_server, size=SMALL) as screen:
        wait_until(lambda: screen.has("queue 00") and not screen.has("queue 29"))
        screen.type("\x1b[F")
        wait_until(lambda: screen.has("queue 29") and not screen.has("queue 00"))
        assert screen.has("  queue   ")  # the heading stays


@pytest.mark.proof
def test_top_goes_on_while_a_shard_is_down(redis_server: RedisServer, redis_binary: str) -> None:
    with RedisServer(redis_binary) as other:
        urls = f"{redis_server.url} {other.url}"
        with top(redis_server, [COMMAND, "shards", f"--shards={urls}"]) as screen:
            wait_until(lambda: screen.has("2 shards, ", "tickets"))
            assert "NOT SEEN" not in screen.plain
            screen.type("\x1b[Fp")
            wait_until(lambda: screen.has("these are several databases: name one with --database"))
            other.kill()
            wait_until(lambda: screen.has("NOT SEEN, so in none of the above: shard 1, ", "1 shard, "))
            other.start()
            wait_until(lambda: screen.has("2 shards, ", "tickets") and not screen.has("NOT SEEN"))


def test_top_needs_a_terminal(redis_server: RedisServer) -> None:
    done = preloaded.run([COMMAND, "top"], env=environment(redis_server))
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a terminal; limpyd-jobs info --watch does not" in done.stderr
