"""``limpyd-jobs pause`` and ``limpyd-jobs resume``, as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Queue

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


def run(server: RedisServer, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url},
    )
    return done.returncode, done.stdout


def test_names_are_paused_and_resumed(redis_server: RedisServer) -> None:
    assert run(redis_server, "pause", "mails", "pushes") == (0, "mails: paused\npushes: paused\n")
    assert Queue.get_paused_names() == {"mails", "pushes"}
    assert run(redis_server, "pause", "mails") == (0, "mails: paused already\n")
    assert run(redis_server, "resume", "mails") == (0, "mails: resumed\n")
    assert run(redis_server, "resume", "mails") == (0, "mails: not paused\n")
    assert Queue.get_paused_names() == {"pushes"}


def test_those_of_another_queue_model_are_named_by_it(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    run(redis_server, "pause", "mails", "--queue-model=limpyd_jobs.Queue")
    assert redis_client.smembers("jobs:queue:paused") == {"mails"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [([], "the name of a queue is needed"), (["a,b"], "have a comma"), (["a", "--wrong"], "no such option")],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    redis_server: RedisServer, arguments: list[str], reason: str
) -> None:
    status, told = run(redis_server, "resume", *arguments)
    assert status == 2
    assert reason in told
    assert told.count("\n") == 1
