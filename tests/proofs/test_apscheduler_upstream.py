"""APScheduler's own tests of job stores, with ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from servers import RedisServer

pytest.importorskip("apscheduler")
pytest.importorskip("pytz")

from upstream import run_tests, source_of

pytestmark = pytest.mark.long

FIXTURE = """
import os

import pytest
import redis

from limpyd_jobs.contrib.apscheduler import LimpydJobStore, RedisJobStore


@pytest.fixture
def redisjobstore():
    path = os.environ["REDIS_SOCKET"]
    client = redis.Redis(unix_socket_path=path, db=9)
    client.flushdb()
    if os.environ["KIND"] == "drop-in":
        store = RedisJobStore(unix_socket_path=path, db=9)
    else:
        store = LimpydJobStore(unix_socket_path=path, db=9, serializer=os.environ["KIND"], allowed=["tests"])
    store.start(None, "redis")
    yield store
    store.remove_all_jobs()
    store.shutdown()
    assert [key for key in client.keys() if not key.endswith(b":changes")] == []
"""
# A method of an object is stored with the object, which JSON cannot hold.
NOT_AS_JSON = "test_add_callable_instance_method_job"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their tests, of which those of all persistent stores are run with the one above."""
    source = source_of("apscheduler", tmp_path_factory.mktemp("apscheduler"))
    (source / "tests" / "__init__.py").touch()
    (source / "tests" / "ours.py").write_text(FIXTURE)
    path = source / "tests" / "test_jobstores.py"
    text = re.sub(r"@pytest.fixture\ndef redisjobstore\(.*?\n\n\n", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r'params=\[\n(?:        "\w+",\n)+    \],\n    ids=\[[^\]]*\],', 'params=["redisjobstore"],', text)
    path.write_text(text.replace("\n\n\n", "\n\nfrom tests.ours import redisjobstore\n\n\n", 1))
    return source


@pytest.mark.parametrize("kind", ["json", "pickle", "drop-in"])
def test_theirs_pass_with_our_store(upstream: Path, redis_server: RedisServer, kind: str) -> None:
    arguments = ("tests/test_jobstores.py", "-k", "redisjobstore and not repr")
    failed, passed = run_tests(upstream, *arguments, KIND=kind, REDIS_SOCKET=redis_server.socket)
    assert {re.sub(r".*::|\[.*", "", name) for name in failed} == ({NOT_AS_JSON} if kind == "json" else set())
    assert passed >= 46
