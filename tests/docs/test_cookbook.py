"""The cookbook of the manual, with the workers that it names: its file, its commands, processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest
import redis
from pages import FILES, ROOT, RUN_COMMAND, SHELL, commands_of
from servers import RedisServer, wait_until

PAGE = "docs/howto/cookbook.rst"
MAILS, CALLS, EXPORTS = (command[1:] for block in SHELL if block.page == PAGE for command in commands_of(block))
SELDOM = ("--fetch-delayed-delay=3600", "--fetch-priorities-delay=3600", "--timeout=3600")

MEETING = """
from myapp.shop import Job
from servers import wait_until

class Meeting(Job):
    namespace = "meeting"
    queue_name = "mails"

    def run(self, queue):
        redis = self.get_connection()
        redis.sadd("met", self.pk.get())
        wait_until(lambda: redis.scard("met") == 3)
"""
LONG = """
from pathlib import Path

from myapp.shop import Export, deliver
from servers import wait_until

class LongExport(Export):
    def run(self, queue):
        deliver("archive@example.com", "begun")
        wait_until(Path("go").exists)
        super().run(queue)
"""


class Shop:
    """The application of the cookbook, in a directory, with some more jobs."""

    def __init__(self, directory: Path, server: RedisServer) -> None:
        self.directory = directory
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (directory, ROOT, ROOT / "tests"))),
            "LIMPYD_JOBS_DATABASE": server.url,
        }
        (directory / "myapp").mkdir()
        shop = next(block.text for block in FILES if block.page == PAGE)
        for name, text in (("__init__", ""), ("shop", shop), ("meeting", MEETING), ("long", LONG)):
            (directory / "myapp" / f"{name}.py").write_text(text, encoding="utf-8")

    def add(self, program: str) -> None:
        """Run a program that adds jobs."""
        lines = "from datetime import timedelta\nfrom myapp.long import *\nfrom myapp.meeting import *\n"
        program = lines + "from myapp.shop import *\n" + dedent(program)
        subprocess.run([sys.executable, "-c", program], check=True, cwd=self.directory, env=self._environment)

    @property
    def outbox(self) -> list[str]:
        """What was delivered."""
        path = self.directory / "outbox.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    @property
    def log(self) -> str:
        """What all workers logged."""
        return "".join(path.read_text(encoding="utf-8") for path in self.directory.glob("*.log"))

    @contextmanager
    def working(self, command: list[str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of the cookbook; in the end, ask it to end, and see that it does as it should."""
        arguments = [argument.replace("/srv/myapp", str(self.directory)) for argument in (*command, *options)]
        logs = len([*self.directory.glob("*.log")])
        with (self.directory / f"{logs}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", RUN_COMMAND, *arguments], cwd=self.directory, env=self._environment, stderr=log
            )
        try:
            yield process
            process.terminate()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()

    def work(self, command: list[str], *options: str) -> None:
        """Run a command of the cookbook to its end."""
        with self.working(command, *options) as process:
            assert process.wait(timeout=60) == 0


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer, redis_client: redis.Redis) -> Shop:
    return Shop(tmp_path, redis_server)


def test_mails_are_sent_by_several_workers_at_once_and_the_outcome_is_logged(shop: Shop) -> None:
    shop.add("""
        Meeting.add_jobs([*"abc"])  # none of which ends before all three are run
        mails = ({"identifier": f"sold:{number}", "to": f"{number}@example.com"} for number in range(20))
        Mail.add_jobs(mails, text="sold")
        Mail.add_job("lost", to="bob", text="lost")
    """)
    with shop.working(MAILS):
        wait_until(lambda: shop.log.count("success, in ") == 23 and "error: " in shop.log)
    assert sorted(shop.outbox) == sorted(f"{number}@example.com: sold" for number in range(20))
    line = r"\[mails\|\d+\|sold:(\d+)\] success, in 0:00:[\d.]+: sent to (\d+)@example\.com(?: \(Mail\))?\n"
    sent = re.findall(line, shop.log)
    assert sorted(sent) == sorted((str(number), str(number)) for number in range(20))
    assert re.search(r"\[mails\|21\|lost\] error: .*bob is not an address", shop.log)


def test_a_mail_waits_for_a_mail_server_that_does_not_answer(shop: Shop) -> None:
    (shop.directory / "outbox.txt").mkdir()  # so that to write there is an OSError
    shop.add('Mail.add_job("sold:42", to="ann@example.com", text="sold")')
    with shop.working(MAILS, "--processes=1"):
        wait_until(lambda: "[requeued]" in shop.log)
        (shop.directory / "outbox.txt").rmdir()
        wait_until(lambda: "sent to ann" in shop.log)
    assert shop.outbox == ["ann@example.com: sold"]


def test_one_worker_calls_callbacks_by_name_and_nothing_else(shop: Shop, redis_client: redis.Redis) -> None:
    shop.add("""
        Call.add_job("thank", function="thank", parameters=["cid@example.com"])
        Call.add_job("refund", function="refund", parameters=["cid@example.com", 250])
        Call.add_job("evil", function="os.mkdir", parameters=["evil"])
    """)
    shop.work(CALLS, "--max-loops=3")
    assert shop.outbox == ["cid@example.com: thank you"]
    assert "250 cents for cid@example.com" in shop.log
    assert "no callback has the name os.mkdir" in shop.log
    assert redis_client.scard("jobs:error:type:LookupError") == 1
    assert not (shop.directory / "evil").exists()


def test_what_is_urgent_comes_first_and_what_has_time_last(shop: Shop) -> None:
    shop.add("""
        for number in range(3):
            for text, priority in (("news", WHENEVER), ("invoice", NORMAL), ("password", URGENT)):
                Mail.add_job(f"{text} {number}", priority=priority, to="dan@example.com", text=text)
    """)
    shop.work(MAILS, "--processes=1", "--max-loops=9")
    assert [line.split()[1] for line in shop.outbox] == [*["password"] * 3, *["invoice"] * 3, *["news"] * 3]


def test_reminders_are_sent_by_workers_that_sleep_and_not_if_they_are_taken_back(
    shop: Shop, redis_client: redis.Redis
) -> None:
    with shop.working(MAILS, *SELDOM):
        shop.add('Mail.add_job("hello", to="eve@example.com", text="hello")')
        wait_until(lambda: "hello" in "".join(shop.outbox))
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 3, "idle workers")
        shop.add("""
            for order, seconds in ((50, 3600), (51, 0.3)):
                Mail.add_job(f"remind:{order}", delayed_for=seconds, to="eve@example.com", text=f"pay {order}")
            Mail.get(identifier="remind:50", queued="1").cancel()
        """)
        wait_until(lambda: len(shop.outbox) == 2)
    assert shop.outbox == ["eve@example.com: hello", "eve@example.com: pay 51"]
    assert redis_client.smembers("shop:mail:status:c") == {"2"}


def test_a_flood_of_exports_leaves_the_calls_their_share(shop: Shop) -> None:
    shop.add("""
        Export.add_jobs([f"export {number}" for number in range(100)])
        thanks = ({"identifier": str(number), "parameters": ["cid@example.com"]} for number in range(30))
        Call.add_jobs(thanks, function="thank")
    """)
    shop.work(CALLS, "--max-loops=20")
    assert [line.split("@")[0] for line in shop.outbox].count("cid") == 15


def test_a_long_export_keeps_no_mail_waiting(shop: Shop) -> None:
    shop.add('LongExport.add_job("all")')
    with shop.working(EXPORTS), shop.working(MAILS):
        wait_until(lambda: len(shop.outbox) == 1)
        shop.add('Mail.add_job("hello", to="eve@example.com", text="hello")')
        wait_until(lambda: len(shop.outbox) == 2)
        (shop.directory / "go").touch()
        wait_until(lambda: len(shop.outbox) == 3)
    assert [line.split()[1] for line in shop.outbox] == ["begun", "hello", "all"]
