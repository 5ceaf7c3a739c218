"""How workers and commands find the code of an application: by environment variables, and by a class that sets it up;
and how a worker begins anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer, wait_until

from limpyd_jobs import Job

BIN = Path(sys.executable).parent

APPLICATION = {
    "shop/__init__.py": "",
    "shop/jobs.py": (
        "from limpyd_jobs import job\n"
        "@job(queue='shop', priority=3)\n"
        "def ship(order: int) -> None: print('shipped', order, flush=True)\n"
    ),
    "shop/config.py": (
        "import os\n"
        "from limpyd_jobs.workers import WorkerConfig\n"
        "class Config(WorkerConfig):\n"
        "    def __init__(self, argv=None):\n"
        "        os.environ['SET_UP'] = '1'\n"
        "        super().__init__(argv)\n"
        "class Broken(WorkerConfig):\n"
        "    def __init__(self, argv=None):\n"
        "        raise RuntimeError('no settings')\n"
    ),
    "shop/careful.py": (
        "import os\n"
        "from limpyd_jobs import job\n"
        "os.environ['SET_UP']\n"
        "@job(queue='shop')\n"
        "def pack(order: int) -> None: ...\n"
    ),
    "wrong.py": "from limpyd_jobs import job\n@job\ndef f(x): ...\n",
}
MODULES, PLACES, CONFIG = "LIMPYD_JOBS_MODULES", "LIMPYD_JOBS_PYTHONPATH", "LIMPYD_JOBS_WORKER_CONFIG"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def application(tmp_path: Path) -> Path:
    for path, text in APPLICATION.items():
        file = tmp_path / "application" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "application"


@pytest.fixture
def run(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path, application: Path) -> Run:
    def run(*words: str, **environment: str) -> Any:
        command, *arguments = words
        return preloaded.run(
            [sys.executable, str(BIN / command), *arguments],
            cwd=tmp_path,
            env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, PLACES: str(application), **environment},
        )

    return run


def test_the_environment_says_where_code_is_and_which_modules_have_jobs(run: Run) -> None:
    added = run("limpyd-jobs", "jobs", "add", "shop.jobs.ship", "order=7", **{MODULES: "shop.jobs"})
    assert (added.stdout, added.stderr) == ("shop.jobs.ship:1\n", "")
    done = run("limpyd-jobs-worker", "--queues=shop", "--burst", "--no-title", **{MODULES: "shop.jobs"})
    assert done.stdout == "shipped 7\n", done.stderr
    shown = run("limpyd-jobs-worker", "--queues=a", "--dry-run", "--print-options", **{MODULES: "shop.jobs"})
    assert " - job-modules = shop.jobs\n" in shown.stdout


def test_a_job_is_added_without_an_identifier_by_the_priority_of_its_class(run: Run) -> None:
    for words in (["order=7"], ["order:8", "order=8"], ["order=9", "--priority=1"]):
        run("limpyd-jobs", "jobs", "add", "shop.jobs.ship", *words)
    listed = run("limpyd-jobs", "jobs", "list", "--jsonl", "--oldest-first").stdout
    assert [line.partition('"priority": ')[2][:1] for line in listed.splitlines()] == ["3", "3", "1"]
    assert '"identifier": "order:8"' in listed


def test_an_option_wins(run: Run, application: Path) -> None:
    environment = {MODULES: "missing", PLACES: "/nowhere", CONFIG: "missing.Config"}
    config = "--worker-config=shop.config.Config"
    options = [f"--pythonpath={application}", "--job-modules=shop.careful", config]
    assert run("limpyd-jobs", "info", *options, **environment).returncode == 0
    done = run("limpyd-jobs-worker", "--queues=a", "--dry-run", "--print-options", *options, **environment)
    assert " - worker-config = <class 'shop.config.Config'>\n" in done.stdout


@pytest.mark.parametrize("by_option", [True, False])
def test_commands_do_what_the_class_of_workers_does_before(run: Run, by_option: bool) -> None:
    path = "shop.config.Config"
    words, environment = ([f"--worker-config={path}"], {}) if by_option else ([], {CONFIG: path})
    done = run("limpyd-jobs", "check", "--job-modules=shop.careful", *words, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    without = run("limpyd-jobs", "check", "--job-modules=shop.careful")
    assert (without.returncode, without.stdout) == (2, "")
    assert "KeyError: 'SET_UP'" in without.stderr


WRONG = [
    ({MODULES: "wrong"}, "wrong.f (", "the parameter 'x' has no annotation"),
    ({MODULES: ","}, "Environment variable LIMPYD_JOBS_MODULES: No module of jobs is named by ','", ""),
    ({CONFIG: "shop.config.Nothing"}, 'Unable to import "worker_config", LIMPYD_JOBS_WORKER_CONFIG=', "AttributeError"),
    ({CONFIG: "shop.config.Broken"}, "LIMPYD_JOBS_WORKER_CONFIG=shop.config.Broken: RuntimeError: no settings (", ""),
    ({CONFIG: "shop.jobs.ship"}, "option --worker-config: ", "is not a subclass of WorkerConfig"),
]


@pytest.mark.parametrize(("environment", "one", "other"), WRONG, ids=[f"{each[0]}" for each in WRONG])
@pytest.mark.parametrize(
    "words", [("limpyd-jobs-worker", "--queues=a"), ("limpyd-jobs", "info")], ids=["worker", "info"]
)
def test_what_cannot_be_imported_is_told_in_one_line(
    run: Run, words: tuple[str, ...], environment: dict[str, str], one: str, other: str
) -> None:
    done = run(*words, **environment)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert one in done.stderr
    assert other in done.stderr


HOT = "def handle(job, queue): job.get_connection().rpush('told', {!r})\n"


@pytest.mark.proof
def test_a_worker_begins_anew_when_code_has_changed(
    redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    code, log = tmp_path / "hot.py", tmp_path / "log"
    code.write_text(HOT.format("one"))
    words = ["--queues=hot", "--callback=hot.handle", "--no-title", "--reload", f"--database={redis_server.url}"]
    with log.open("w") as output:
        parent = subprocess.Popen([BIN / "limpyd-jobs-worker", *words], cwd=tmp_path, stderr=output)
    try:
        Job.add_job("a", "hot")
        wait_until(lambda: redis_client.lrange("told", 0, -1) == ["one"], "the first job")
        code.write_text("x = (\n")
        wait_until(lambda: "The worker failed: it begins anew" in log.read_text(), "an error")
        code.write_text(HOT.format("a second time"))
        Job.add_job("b", "hot")
        wait_until(lambda: redis_client.lrange("told", 0, -1) == ["one", "a second time"], "the second job")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(timeout=60) == 0
    finally:
        parent.kill()
        parent.wait()
    assert "hot.py changed: the worker begins anew, once its job is finished" in log.read_text()


def test_reloading_needs_a_package(run: Run, tmp_path: Path) -> None:
    (tmp_path / "application" / "watchfiles.py").write_text("raise ImportError")
    done = run("limpyd-jobs-worker", "--queues=a", "--reload")
    assert done.returncode == 2
    assert "error: --reload needs watchfiles: pip install 'redis-limpyd-jobs[reload]'" in done.stderr
