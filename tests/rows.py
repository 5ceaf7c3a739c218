"""Which tests are run again for another Python, redis-py or server, as rows of ``.ci/run`` do: ``--tenth=SEED``.

Those of `TOUCHED`, and a tenth of the other files, which the seed chooses: the same ones whatever else is run, in each
process and on each machine. What is left out is not even imported. Of a test with many cases, a third is run: another
third for each of three Pythons in a row, so that those rows together run all.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

# What touches the wire, the parser, the server or the interpreter. All else computes with what these have read.
TOUCHED = (
    "tests/transitions/",  # each script, on the server
    "tests/check/test_live.py",  # large answers
    "tests/compat/test_shared_redis.py",  # what version 2 reads and writes
    "tests/contrib/test_apscheduler",  # which differ with the Python
    "tests/contrib/test_taskflow",
    "tests/models/following/test_awaited_changes.py",
    "tests/models/following/test_waiting.py",
    "tests/search/test_broken_data.py",  # types and bytes as this redis-py and this server tell them
    "tests/query/test_refused_writes.py",
    "tests/commands/test_command_line.py",  # argparse and the end of processes
    "tests/redis/test_awaiting.py",
    "tests/redis/test_cluster.py",
    "tests/redis/test_connections.py",
    "tests/redis/test_database.py",
    "tests/redis/test_defaults.py",
    "tests/redis/test_embedded.py",
    "tests/classes/test_job_classes.py",  # imports
    "tests/test_functions.py",
    "tests/test_package.py",
    "tests/test_startup.py",
    "tests/redis/test_replication.py",
    "tests/redis/test_sentinel.py",
    "tests/test_surface.py",
    "tests/testing/",  # pytest, and its plugin
    "tests/workers/running/test_blocking_calls.py",  # asyncio, threads, sockets
    "tests/workers/running/test_broken_workers.py",
    "tests/workers/running/test_draining.py",
    "tests/workers/running/test_many_at_once.py",
    "tests/workers/running/test_pools.py",
    "tests/workers/process/test_forks.py",
    "tests/workers/test_parser.py",
    "tests/workers/claiming/test_prefetch.py",
    "tests/workers/process/test_processes.py",
    "tests/workers/process/test_service_manager.py",
    "tests/workers/fleet/test_registration.py",
    "tests/workers/process/test_signals.py",
    "tests/workers/test_stored_data.py",
    "tests/workers/claiming/test_waking.py",
    "tests/proofs/test_cut_at_the_start.py",
    "tests/proofs/test_lost_replies.py",
    "tests/proofs/test_redis_states.py",
)

THIRD = 3


def seed_of(option: str) -> str:
    """Return the seed that was given, or for ``any`` another one each time."""
    return option if option != "any" else str(random.SystemRandom().randrange(1, 10**6))


def is_left_out(path: str, seed: str) -> bool:
    """Whether a file, named from the root, is not run."""
    is_touched = path.startswith(TOUCHED)
    return Path(path).name.startswith("test_") and not is_touched and zlib.crc32(f"{seed} {path}".encode()) % 10 != 0


def cases_left_out(items: Iterable[pytest.Item], seed: str, row: int = sys.version_info.minor) -> Iterator[pytest.Item]:
    """All cases of each test but a third, or one of two; which third, depends on the seed and on the row."""
    tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        turn = zlib.crc32(f"{seed} {name}".encode()) + row
        kept = {turn % len(cases)} if len(cases) < THIRD else range(turn % THIRD, len(cases), THIRD)
        yield from (case for position, case in enumerate(cases) if position not in kept)
