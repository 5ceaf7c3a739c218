"""The application of the manual, and Python to run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
import redis
from pages import FILES, ROOT
from servers import RedisServer

# Django is no requirement of the tests.
DJANGO = 'import os, django\nos.environ["DJANGO_SETTINGS_MODULE"] = "myapp.settings"\ndjango.setup()\n'
STAND_INS = {"django_setup.py": DJANGO}


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A directory with the files of all pages."""
    for path, text in [*STAND_INS.items(), *((block.file, block.text) for block in FILES)]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "myapp" / "__init__.py").touch()
    return tmp_path


@pytest.fixture
def run_python(application: Path, redis_server: RedisServer, redis_client: redis.Redis) -> Callable[..., str]:
    """Run Python in a process of its own, which can import the application; return what it prints."""

    def run(*arguments: str, of: str = "stdout", cwd: Path = application) -> str:
        done = preloaded.run(
            [sys.executable, *arguments],
            cwd=cwd,
            timeout=240,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(application), str(ROOT)]),
                "LIMPYD_JOBS_DATABASE": redis_server.url,
                "COLUMNS": "80",
            },
        )
        assert done.returncode == 0, done.stderr
        return str(getattr(done, of))

    return run
