"""TaskFlow's own tests of boards and of conductors, with our board."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import RedisServer

pytest.importorskip("taskflow")
pytest.importorskip("oslotest")

from upstream import run_tests

pytestmark = pytest.mark.long

BOARDS = """
import os

import redis
from oslo_utils import uuidutils
from taskflow import test
from taskflow.tests.unit.jobs import base, test_redis_job

from limpyd_jobs.contrib.taskflow import LimpydJobBoard

theirs = test_redis_job.RedisJobboardTest


class TestBoard(test.TestCase, base.BoardTestMixin):
    test_posting_claim_expiry = theirs.test_posting_claim_expiry
    test_posting_claim_same_owner = theirs.test_posting_claim_same_owner

    def setUp(self):
        super().setUp()
        self.client, self.board = self.create_board()

    def close_client(self, client):
        client.close()

    def create_board(self, persistence=None):
        client = redis.Redis(unix_socket_path=os.environ["REDIS_SOCKET"], db=8)
        conf = {"namespace": f"taskflow-{uuidutils.generate_uuid()}".encode("latin-1")}
        board = LimpydJobBoard("test-board", conf, client=client, persistence=persistence)
        self.addCleanup(board.close)
        self.addCleanup(self.close_client, client)
        return client, board
"""

CONDUCTORS = """
import os

from oslo_utils import uuidutils
from taskflow.conductors import backends
from taskflow.persistence.backends import impl_memory
from taskflow.tests import utils

utils.zookeeper_available = lambda *args, **kwargs: True  # their board is made by `make_components` only

from taskflow.tests.unit import test_conductors

from limpyd_jobs.contrib.taskflow import LimpydJobBoard


class TestConductors(test_conductors.ManyConductorTest):
    def make_components(self):
        persistence = impl_memory.MemoryBackend()
        conf = {"unix_socket_path": os.environ["REDIS_SOCKET"], "db": 8, "namespace": uuidutils.generate_uuid()}
        board = LimpydJobBoard("testing", conf, persistence=persistence)
        options = {"persistence": persistence, **self.conductor_kwargs}
        conductor = backends.fetch(self.kind, "testing", board, **options)
        return test_conductors.ComponentBundle(board, persistence, conductor)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_boards.py").write_text(BOARDS)
    (tmp_path / "conductors.py").write_text(CONDUCTORS)
    return tmp_path


def test_theirs_pass_with_our_board(folder: Path, redis_server: RedisServer) -> None:
    pytest.importorskip("redis.maint_notifications", reason="the tests of their redis board need redis-py 8")
    failed, passed = run_tests(folder, "test_boards.py", REDIS_SOCKET=redis_server.socket)
    assert failed == []
    assert passed >= 15


def test_their_conductors_work_with_our_board(folder: Path, redis_server: RedisServer) -> None:
    """Each of theirs is run with a blocking and two kinds of a non-blocking conductor, which pytest cannot do."""
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "conductors.TestConductors"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "REDIS_SOCKET": redis_server.socket},
        capture_output=True,
        text=True,
        timeout=240,
    )
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert done.returncode == 0, done.stderr[-5000:]
    assert ran
    assert int(ran[1]) >= 33
