"""The command, as a user runs it: in a process of its own, against a real Redis."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from cases import each
from servers import RedisServer

from limpyd_jobs import STATUSES, Job, Queue

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("limpyd-jobs-worker"))
TIMEOUT = 20  # seconds

SHOP = '''
import os
from optparse import make_option

import redis

from limpyd_jobs import Job, Worker
from limpyd_jobs.workers import WorkerConfig

NUMBER = 3


def stop_at(gate):
    """Wait until the test opens the gate, so that it can look at us here."""
    client = redis.Redis(unix_socket_path=os.environ["GATES"])
    client.rpush("reached:" + gate, "x")
    client.blpop("open:" + gate, 60)


def ship(job, queue):
    print("shipped", job.identifier.hget(), flush=True)


def ship_slowly(job, queue):
    stop_at("running")
    ship(job, queue)


class ShopWorker(Worker):
    queues = "orders"
    max_loops = 1
    parameters = Worker.parameters + ("tenant",)
    tenant = "nobody"

    def __init__(self, queues=None, **kwargs):
        self.tenant = kwargs.pop("tenant", self.tenant)
        super().__init__(queues, **kwargs)

    def execute(self, job, queue):
        print(self.tenant, "shipped", job.identifier.hget(), flush=True)


class ShopConfig(WorkerConfig):
    option_list = WorkerConfig.option_list + (make_option("--tenant"),)

    def __init__(self, argv=None):
        print("set up before", argv, flush=True)
        super().__init__(argv)


class SlowConfig(WorkerConfig):
    def execute(self):
        stop_at("init")
        super().execute()

    def prepare_worker(self):
        super().prepare_worker()
        stop_at("prepared")

    def run(self):
        super().run()
        stop_at("terminated")


class SlowWorker(Worker):
    def update_keys(self):
        if self.status == "starting":
            stop_at("starting")
        super().update_keys()
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory of an application, whose module is ``shop``, alone in its own."""
    directory = tmp_path / "application"
    directory.mkdir()
    (directory / "shop.py").write_text(SHOP)
    (directory / "broken.py").write_text("1 / 0\n")
    return directory


class Command:
    """Runs the command with an application on its path, and a database."""

    def __init__(self, shop: Path, server: RedisServer) -> None:
        self.shop = shop
        self.server = server
        self.database = f"--database={server.url}"
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with the given arguments only."""
        return preloaded.run([COMMAND, *arguments], env=self._environment(**environment), timeout=TIMEOUT)

    def work(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, on the database and with the application."""
        return self.run(self.database, f"--pythonpath={self.shop}", *arguments, **environment)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it, on the database and with the application."""
        process = subprocess.Popen(
            [COMMAND, self.database, f"--pythonpath={self.shop}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(),
        )
        self.started.append(process)
        return process

    def _environment(self, **others: str) -> dict[str, str]:
        return {**os.environ, "GATES": self.server.socket, **others}

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def command(shop: Path, redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Command]:
    command = Command(shop, redis_server)
    yield command
    command.end()


def eventually(condition: Callable[[], Any]) -> Any:
    """Return what the condition returns, once that is true."""
    deadline = time.monotonic() + TIMEOUT
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return result


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit status, the output and the errors of a process, once it has ended."""
    output, errors = process.communicate(timeout=TIMEOUT)
    return process.returncode, output, errors


def title_of(process: subprocess.Popen[str]) -> str:
    arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return arguments.replace(b"\0", b" ").decode().strip()


class Gates:
    """The places where the application stops until it may go on."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def reached(self, gate: str) -> None:
        """Return when the application stands at the gate."""
        assert self.client.blpop(f"reached:{gate}", TIMEOUT)

    def open(self, gate: str) -> None:
        self.client.rpush(f"open:{gate}", "x")


@pytest.fixture
def gates(redis_client: redis.Redis) -> Gates:
    return Gates(redis_client)


# What it refuses


@pytest.mark.matrix(8)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        # a database that cannot be parsed
        (["--queues=a", "--database=localhost:port"], "--database"),
        (["--queues=a", "--database=localhost:6379:0:0"], "--database"),
        (["--queues=a", "--database=http://localhost"], "--database"),
        # a class or callback that is not what the option needs
        (["--queues=a", "--callback=shop.absent"], "--callback"),
        (["--queues=a", "--callback=absent.ship"], "--callback"),
        (["--queues=a", "--callback=broken.ship"], "--callback"),
        (["--queues=a", "--callback=ship"], "--callback"),
        (["--queues=a", "--callback=shop.NUMBER"], "--callback"),
        (["--queues=a", "--worker-class=shop.ship"], "--worker-class"),
        (["--queues=a", "--worker-class=limpyd_jobs.Job"], "--worker-class"),
        (["--queues=a", "--queue-model=limpyd_jobs.Job"], "--queue-model"),
        (["--queues=a", "--error-model=limpyd_jobs.Job"], "--error-model"),
        (["--queues=a", "--worker-config=shop.ShopWorker"], "--worker-config"),
        (["--queues=a", "--worker-config=absent.Config"], "--worker-config"),
        (["--queues=a", "--worker-config=broken.Config"], "--worker-config"),
        # no queue
        ([], "queue"),
        (["--queues="], "--queues"),
        (["--queues=,"], "--queues"),
        # unknown or surplus arguments
        (["--queues=a", "--colour=red"], "--colour"),
        (["--queues=a", "-q"], "-q"),
        (["--queues=a", "--save"], "--save"),
        (["--queues"], "--queues"),
        # a level or number out of range, or none
        (["--queues=a", "--logger-level=LOUD"], "--logger-level"),
        (["--queues=a", "--logger-level=-1"], "--logger-level"),
        (["--queues=a", "--max-loops=-1"], "--max-loops"),
        (["--queues=a", "--max-loops=many"], "--max-loops"),
        (["--queues=a", "--max-loops=0.5"], "--max-loops"),
        (["--queues=a", "--max-duration=-1"], "--max-duration"),
        (["--queues=a", "--timeout=-0.5"], "--timeout"),
        (["--queues=a", "--timeout=nan"], "--timeout"),
        (["--queues=a", "--fetch-priorities-delay=0"], "--fetch-priorities-delay"),
        (["--queues=a", "--fetch-delayed-delay=-1"], "--fetch-delayed-delay"),
        (["--queues=a", "--requeue-times=-1"], "--requeue-times"),
        (["--queues=a", "--requeue-priority-delta=1.5"], "--requeue-priority-delta"),
        (["--queues=a", "--requeue-delay-delta=-1"], "--requeue-delay-delta"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_one_line_of_error_and_exit_status_2(command, arguments, reason):
    result = command.work(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(rf"limpyd-jobs-worker: error: .*{re.escape(reason)}.*\n", result.stderr)


def test_a_wrong_default_database_is_one_line_of_error_and_exit_status_2(command):
    result = command.run("--queues=a", LIMPYD_JOBS_DATABASE="localhost:port")
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"limpyd-jobs-worker: error: .*LIMPYD_JOBS_DATABASE.*\n", result.stderr)


def test_a_redis_that_does_not_answer_is_one_line_of_error_and_exit_status_1(command):
    result = command.run("--queues=a", f"--database=unix://{command.shop}/no.sock", "--wait-for-redis=0")
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"limpyd-jobs-worker: error: cannot use Redis: .*no\.sock.*\n", result.stderr)


# What it says


@each("program", [[COMMAND], [sys.executable, str(ROOT / "scripts" / "worker.py")]])
def test_the_command_and_the_script_help(program):
    result = subprocess.run([*program, "--help"], capture_output=True, text=True, timeout=TIMEOUT)
    assert (result.returncode, result.stderr) == (0, "")
    name = Path(program[-1]).name
    assert result.stdout.startswith(f"Usage: {name} [options]\n\nRun a worker using redis-limpyd-jobs\n")
    assert "--queues=QUEUES" in result.stdout


def test_the_version_names_this_library_and_limpyd(command):
    result = command.run("--version")
    assert result.returncode == 0
    assert re.fullmatch(r"limpyd-jobs-worker \(redis-limpyd-jobs 3\.[\d.]+, redis-limpyd 2\.[\d.]+\)\n", result.stdout)


def test_the_options_in_use_are_printed_and_a_dry_run_runs_no_job(command):
    job = Job.add_job("1", "orders")
    result = command.work("--queues=orders", "--callback=shop.ship", "--print-options", "--dry-run")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "The script is running with the following options:"
    expected = [" - dry-run = True", " - queues = orders", " - callback = shop.ship", " - max-loops = 1000"]
    assert set(expected) <= set(lines)
    assert job.status.hget() == STATUSES.WAITING


def test_the_logs_go_to_standard_error_as_documented(command):
    Job.add_job("1", "orders")
    result = command.work("--queues=orders", "--callback=shop.ship", "--max-loops=1")
    prefix = r"\[\d+\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \(limpyd-jobs\) INFO     \[\d{6}\] "
    assert all(re.match(prefix, line) for line in result.stderr.splitlines())
    assert re.search(prefix + r"\[orders\|1\|1\] ", result.stderr)


def test_a_level_in_any_case_limits_the_logs(command):
    result = command.work("--queues=orders", "--dry-run", "--logger-level=error")
    assert (result.returncode, result.stderr) == (0, "")


# What it does


def test_jobs_run_with_a_callback(command):
    jobs = [Job.add_job(str(number), "orders") for number in (1, 2)]
    result = command.work("--queues=mails,orders", "--callback=shop.ship", "--max-loops=2", "--timeout=0.5")
    assert (result.returncode, result.stdout) == (0, "shipped 1\nshipped 2\n")
    assert [job.status.hget() for job in jobs] == [STATUSES.SUCCESS] * 2


def test_jobs_run_with_a_worker_class_and_its_attributes(command):
    Job.add_job("1", "orders")
    result = command.work("--worker-class=shop.ShopWorker")
    assert (result.returncode, result.stdout) == (0, "nobody shipped 1\n")


def test_a_config_class_is_called_first_and_its_options_reach_the_worker(command):
    Job.add_job("1", "orders")
    result = command.work("--worker-class=shop.ShopWorker", "--worker-config=shop.ShopConfig", "--tenant=acme")
    assert (result.returncode, result.stdout) == (0, "set up before None\nacme shipped 1\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pythonpath={shop}"],
        ["--pythonpath", "{shop}"],
        ["--pythonpath=/nowhere", "--pythonpath={shop}"],
        ["--pythonpath=/nowhere:{shop}"],
        ["--pythonpath={parent}/*"],
        ["--pythonpath=/nowhere", "{shop}"],
        ["--pythonpath", "{shop}", "/nowhere"],
    ],
    ids=" ".join,
)
def test_the_python_path_is_given_in_any_form_and_comes_before_the_config_class(command, arguments):
    paths = [argument.format(shop=command.shop, parent=command.shop.parent) for argument in arguments]
    result = command.run(
        command.database, "--worker-config=shop.ShopConfig", *paths, "--queues=a", "--callback=shop.ship", "--dry-run"
    )
    assert (result.returncode, result.stdout) == (0, "set up before None\n")


def test_an_argument_that_belongs_to_no_option_is_ignored_with_a_warning(command):
    result = command.work("", "--queues=a", "mails", "--dry-run", "--logger-level=error")
    assert (result.returncode, result.stdout) == (0, "")
    assert re.fullmatch(r"limpyd-jobs-worker: warning: .* 'mails'\n", result.stderr)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("spelling", ["gracefuly", "gracefully"])
def test_without_graceful_ending_a_signal_ends_the_worker_at_once(command, gates, spelling):
    job = Job.add_job("1", "orders")
    process = command.start("--queues=orders", "--callback=shop.ship_slowly", f"--no-terminate-{spelling}")
    gates.reached("running")
    process.send_signal(signal.SIGTERM)
    assert finish(process)[:2] == (-signal.SIGTERM, "")
    assert job.status.hget() == STATUSES.RUNNING


def test_a_signal_ends_a_busy_worker_after_its_job_with_exit_status_0(command, gates):
    job, other = (Job.add_job(str(number), "orders") for number in (1, 2))
    process = command.start("--queues=orders", "--callback=shop.ship_slowly")
    gates.reached("running")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    gates.open("running")
    assert finish(process)[:2] == (0, "shipped 1\n")
    assert (job.status.hget(), other.status.hget()) == (STATUSES.SUCCESS, STATUSES.WAITING)


@pytest.mark.proof
def test_a_signal_ends_an_idle_worker_with_exit_status_0(command):
    Queue.get_queue("orders")
    process = command.start("--queues=orders")
    eventually(lambda: "[waiting]" in title_of(process))
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 0


# The title of the process

needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc to read it from")


@pytest.mark.proof
@needs_proc
def test_the_title_shows_each_state_of_the_worker(command, gates):
    Job.add_job("1", "orders")
    Job.add_job("2", "orders", delayed_for=3600)
    process = command.start(
        "--queues=orders,mails",
        "--worker-config=shop.SlowConfig",
        "--worker-class=shop.SlowWorker",
        "--callback=shop.ship_slowly",
        "--max-loops=2",
    )
    name = r"limpyd-jobs-worker#\d{6}"
    queues = "queues=orders,mails"
    states = [
        ("init", r"limpyd-jobs-worker \[init\]"),
        ("prepared", rf"{name} \[init\] {queues}"),
        ("starting", rf"{name} \[starting\] {queues} loop=0/2 waiting=1 delayed=1"),
        ("running", rf"{name} \[running\] {queues} loop=1/2 waiting=[01] delayed=1 duration=0:\d\d:\d\d"),
    ]
    for gate, title in states:
        gates.reached(gate)
        assert re.fullmatch(title, title_of(process))
        gates.open(gate)
    waiting = rf"{name} \[waiting\] {queues} loop=1/2 waiting=[01] delayed=1 duration=0:\d\d:\d\d"
    eventually(lambda: re.fullmatch(waiting, title_of(process)))
    Job.add_job("3", "orders")
    gates.reached("running")
    gates.open("running")
    gates.reached("terminated")
    terminated = rf"{name} \[terminated\] {queues} loop=2/2 waiting=[01] delayed=1 duration=0:\d\d:\d\d"
    assert re.fullmatch(terminated, title_of(process))
    gates.open("terminated")
    assert finish(process)[0] == 0


@pytest.mark.proof
@needs_proc
def test_the_title_shows_that_an_end_was_asked_for(command, gates):
    Job.add_job("1", "orders")
    process = command.start("--queues=orders", "--worker-config=shop.SlowConfig", "--callback=shop.ship_slowly")
    gates.open("init")
    gates.open("prepared")
    gates.reached("running")
    process.send_signal(signal.SIGTERM)
    eventually(lambda: " [running - ending] " in title_of(process))
    gates.open("running")
    gates.reached("terminated")
    assert " [terminated - ending] " in title_of(process)
    gates.open("terminated")
    assert finish(process)[0] == 0


@pytest.mark.proof
@needs_proc
def test_no_title_leaves_the_command_line_to_be_seen(command, gates):
    Job.add_job("1", "orders")
    process = command.start("--queues=orders", "--callback=shop.ship_slowly", "--no-title", "--max-loops=1")
    gates.reached("running")
    assert title_of(process).endswith("--no-title --max-loops=1")
    gates.open("running")
    assert finish(process)[0] == 0
