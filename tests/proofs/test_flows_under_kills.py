"""Workers, and those who make flows and send signals, are killed: no flow is stuck, no job begins too early or is
spawned twice, and no signal is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from flow_victims import CLASSES
from invariants import violations
from servers import RedisServer

from limpyd_jobs import Queue


def killed(server: RedisServer, kills: int, seed: int) -> dict[str, Any]:
    """Let them make and run flows while so many of them are killed; return what came of it, once all is done."""
    program = Path(__file__).with_name("flow_victims.py")
    command = [sys.executable, "-W", "ignore", str(program), server.socket, str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * kills + 120)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def look_at(client: redis.Redis, server: RedisServer, kills: int, crashes: int = 0) -> None:
    seed = random.randrange(10**6)
    client.set("limpyd-jobs:flows:tended", "1", ex=3600)  # what the net would find is not to be missed
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(killed, server, kills, seed)
        for _ in range(crashes):
            time.sleep(random.uniform(2, 8))
            server.kill()
            server.start()
        told = future.result()
    print(f"seed {seed}: {told}")
    assert told["stuck"] == {f"limpyd-jobs:flows:{name}": [] for name in ("live", "building", "todo")}, seed
    assert (told["early"], told["twice"], told["lost"], told["parked"]) == ([], [], [], 0), seed
    assert (told["again"], told["over"]) == ([], []), seed
    assert told["ended"] > kills / 25 - crashes
    assert violations(client, *CLASSES, Queue) == []  # an index of an error may be lost with its worker


def test_no_flow_is_stuck_and_no_job_begins_early(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    look_at(redis_client, redis_server, 60)


@pytest.mark.only_long
def test_so_it_is_after_a_thousand_kills(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    look_at(redis_client, redis_server, 1000)


@pytest.mark.only_long
def test_so_it_is_while_redis_crashes_too(redis_binary: str) -> None:
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always") as server:
        look_at(server.client(), server, 1000, crashes=20)
