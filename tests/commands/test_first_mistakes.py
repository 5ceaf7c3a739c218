"""The mistakes one makes at first, with the commands as users run them: what is wrong is said at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Schedule

BIN = Path(sys.executable).parent

# Each module leaves a file behind when it is imported.
APPLICATION = {
    "bakery/__init__.py": "",
    "bakery/jobs.py": """
        from limpyd_jobs import Job

        class Bread(Job):
            namespace = "bakery"
            queue_name = "oven"
            schedules = {"daily bread": {"cron": "@daily"}}

            def run(self, queue):
                print("baked", self.identifier.hget(), flush=True)
    """,
    "bakery/sweets/__init__.py": "",
    "bakery/sweets/cakes.py": """
        from limpyd_jobs import Job

        class Cake(Job):
            namespace = "bakery"
            queue_name = "oven"
            schedules = {"birthday": {"cron": "@yearly"}}
    """,
    "bakery/__main__.py": "raise SystemExit('a program, no module of jobs')",
    "bakery/not-a-name.py": "raise SystemExit('a script, no module of jobs')",
    "burnt/__init__.py": "",
    "burnt/jobs.py": "import os\n1 / 0\n",
    "django_setup.py": "import django\nfrom django.conf import settings\nsettings.configure()\ndjango.setup()",
    "orders/__init__.py": "",
    "orders/jobs.py": """
        from django.apps import apps
        from limpyd_jobs import Job

        apps.check_apps_ready()

        class Order(Job):
            namespace = "orders"
            queue_name = "oven"

            def run(self, queue):
                print("ordered", self.identifier.hget(), flush=True)
    """,
    "exits.py": "raise SystemExit(3)",
    "json5.py": "raise RuntimeError('it hides no module of that name')",
    "handlers.py": """
        def looped(job, queue):
            yield

        def handle(job, queue):
            print("handled", job.identifier.hget(), flush=True)
    """,
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def application(tmp_path: Path) -> Path:
    directory = tmp_path / "application"
    for path, text in APPLICATION.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix("        ") for line in text.splitlines()))
    return directory


@pytest.fixture
def run(redis_server: RedisServer, redis_client: redis.Redis, application: Path) -> Run:
    """Run a command in the directory of the application, to its end."""

    def run(*words: str, cwd: Path = application, python: tuple[str, ...] = (), **environment: str) -> Any:
        command, *arguments = words
        return preloaded.run(
            [sys.executable, *python, str(BIN / command), *arguments],
            cwd=cwd,
            env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, **environment},
        )

    return run


@pytest.fixture
def work(run: Run) -> Run:
    """Run a worker of the queue "oven", for one job."""

    def work(*arguments: str, **options: Any) -> Any:
        return run("limpyd-jobs-worker", "--queues=oven", "--max-loops=1", "--max-duration=10", *arguments, **options)

    return work


@pytest.fixture
def add_bread(application: Path, redis_server: RedisServer) -> Callable[[], None]:
    def add_bread() -> None:
        code = "from bakery.jobs import Bread; Bread.add_job('rolls')"
        environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
        preloaded.run([sys.executable, "-c", code], cwd=application, env=environment, check=True)

    return add_bread


def assert_refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for text in texts:
        assert text in done.stderr


class TestTheCurrentDirectory:
    def test_is_where_a_worker_looks_for_modules(self, work: Run, add_bread: Callable[[], None]) -> None:
        add_bread()
        assert work().stdout == "baked rolls\n"

    def test_is_where_commands_look_for_modules(self, run: Run) -> None:
        done = run("limpyd-jobs", "check", "--job-modules=bakery.jobs")
        assert (done.returncode, done.stderr) == (0, "")

    def test_hides_no_module_as_it_comes_last(self, run: Run, application: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "json5.py").write_text("from handlers import handle")
        done = run(
            "limpyd-jobs-worker", "--queues=oven", "--callback=json5.handle", "--dry-run", f"--pythonpath={other}"
        )
        assert done.returncode == 0

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("options", [{"PYTHONSAFEPATH": "1"}, {"python": ("-I",)}])
    def test_is_left_out_if_python_is_told_not_to_trust_it(self, work: Run, options: dict[str, Any]) -> None:
        assert_refused(work("--job-modules=bakery", **options), "cannot import 'bakery': ModuleNotFoundError")

    def test_may_have_been_deleted(self, work: Run, tmp_path: Path) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        command = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", str(BIN / "limpyd-jobs-worker"), "--help"]
        assert subprocess.run(command, cwd=gone, capture_output=True, timeout=60).returncode == 0


class TestJobModules:
    def test_are_imported_at_the_start_with_the_schedules_they_declare(self, work: Run) -> None:
        done = work("--job-modules=bakery", "--max-duration=0.5")
        assert done.returncode == 0, done.stderr
        assert {schedule.name.hget() for schedule in Schedule.collection().instances()} == {"daily bread", "birthday"}

    def test_are_shared_by_processes(self, work: Run, application: Path) -> None:
        (application / "bakery" / "once.py").write_text("print('imported', flush=True)")
        worker_class = "class Ending(Worker):\n    def run_started(self): os.kill(os.getppid(), signal.SIGTERM)\n"
        (application / "endings.py").write_text(f"import os, signal\nfrom limpyd_jobs import Worker\n{worker_class}")
        Schedule.add("any", "limpyd_jobs.Job", cron="@yearly", queue_name="oven")
        done = work("--job-modules=bakery", "--processes=2", "--worker-class=endings.Ending")
        assert done.stdout == "imported\n"

    @pytest.mark.parametrize("more", [[], ["--dry-run"], ["--processes=2"]])
    @pytest.mark.parametrize(
        ("module", "texts"),
        [
            ("nowhere", ["cannot import 'nowhere': ModuleNotFoundError: No module named 'nowhere'"]),
            ("bakery.bread", ["cannot import 'bakery.bread': ModuleNotFoundError: No module named 'bakery.bread'"]),
            ("burnt.jobs", ["cannot import 'burnt.jobs': ZeroDivisionError: division by zero", "jobs.py, line 2)"]),
            ("burnt", ["cannot import 'burnt.jobs': ZeroDivisionError: division by zero", "jobs.py, line 2)"]),
            ("exits", ["cannot import 'exits': ImportError: exits ends the program"]),
        ],
    )
    def test_that_cannot_be_imported_end_the_start(
        self, work: Run, module: str, texts: list[str], more: list[str]
    ) -> None:
        assert_refused(work(f"--job-modules=bakery,{module}", *more), "job_modules: ", *texts)

    def test_that_cannot_be_imported_are_refused_by_commands_as_well(self, run: Run) -> None:
        done = run("limpyd-jobs", "check", "--job-modules=burnt")
        assert_refused(done, "option --job-modules: cannot import 'burnt.jobs': ZeroDivisionError", "jobs.py, line 2)")

    def test_of_this_library_may_be_named(self, work: Run) -> None:
        assert work("--job-modules=limpyd_jobs,bakery", "--dry-run").returncode == 0


class TestDjango:
    """Any module that needs Django raises so until `django.setup()` was called."""

    REMEDY = "Django is not set up: with limpyd_jobs.contrib.django in INSTALLED_APPS, use python manage.py limpyd_jobs"
    SET_UP = "--job-modules=django_setup,orders.jobs"

    @pytest.mark.parametrize(
        "words",
        [
            "limpyd-jobs-worker --queues=oven --job-modules=orders.jobs",
            "limpyd-jobs-worker --queues=oven --worker-class=orders.jobs.Worker",
            "limpyd-jobs check --job-modules=orders.jobs",
            "limpyd-jobs check --queue-model=orders.jobs.Queue",
            "limpyd-jobs jobs add orders.jobs.Order 12",
            "limpyd-jobs schedules add daily orders.jobs.Order --cron=@daily",
        ],
    )
    def test_is_set_up_before_jobs_are_imported(self, run: Run, words: str) -> None:
        assert_refused(run(*words.split()), "ImproperlyConfigured: Requested setting INSTALLED_APPS", self.REMEDY)

    @pytest.mark.proof
    def test_is_needed_where_jobs_are_named_by_what_is_stored(self, run: Run) -> None:
        run("limpyd-jobs", "schedules", "add", "daily", "orders.jobs.Order", "--cron=@daily", self.SET_UP)
        assert_refused(run("limpyd-jobs", "schedules", "run-now", "daily"), self.REMEDY)
        assert run("limpyd-jobs", "schedules", "run-now", "daily", self.SET_UP).stdout == "orders.jobs.Order:1\n"
        assert self.REMEDY in run("limpyd-jobs", "jobs", "cancel", "--all", "--dry-run").stdout
        assert self.REMEDY in run("limpyd-jobs", "check", "--pause=0").stdout
        worker = ("limpyd-jobs-worker", "--queues=oven", "--burst")
        assert self.REMEDY in run(*worker).stderr
        assert run(*worker, self.SET_UP).stdout == "ordered daily\n"


class TestTheSettingsOfDjango:
    """Where the environment names them, the commands of `limpyd-jobs` set Django up."""

    @pytest.fixture(autouse=True)
    def _environment(self, application: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "settings_of_django")
        (application / "settings_of_django.py").write_text("INSTALLED_APPS = ['orders']\n")

    def test_are_enough_to_act_on_jobs(self, run: Run) -> None:
        assert run("limpyd-jobs", "jobs", "add", "orders.jobs.Order", "12").stdout == "orders.jobs.Order:1\n"
        assert "canceled" in run("limpyd-jobs", "jobs", "cancel", "orders.jobs.Order:1", "--yes").stdout

    @pytest.mark.proof
    def test_name_the_database_of_all_commands(self, run: Run, application: Path, redis_server: RedisServer) -> None:
        settings = (
            "INSTALLED_APPS = ['limpyd_jobs.contrib.django', 'orders']\n"
            f"LIMPYD_JOBS = {{'DATABASE': '{redis_server.url}?db=4'}}\n"
        )
        (application / "settings_of_django.py").write_text(settings)
        assert run("limpyd-jobs", "jobs", "add", "orders.jobs.Order", "12").stdout == "orders.jobs.Order:1\n"
        with redis.Redis.from_url(redis_server.url, db=4) as client:
            assert client.llen("jobs:queue:1:waiting") == 1
        assert "oven" in run("limpyd-jobs", "backlog").stdout
        done = run("limpyd-jobs", "backlog", f"--database={redis_server.url}?db=3")
        assert "oven" not in done.stdout

    def test_that_are_set_up_otherwise_are_left_alone(self, run: Run, application: Path) -> None:
        config = "class Config(WorkerConfig):\n    def __init__(self, argv):\n        print('configured', flush=True)\n"
        more = "        super().__init__(argv)\n"
        (application / "configs.py").write_text(f"from limpyd_jobs.workers import WorkerConfig\n{config}{more}")
        (application / "settings_of_django.py").write_text("1 / 0\n")
        done = run("limpyd-jobs", "check", "--worker-config=configs.Config", "--pause=0")
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, "configured")

    @pytest.mark.parametrize(
        ("settings", "texts"),
        [
            (None, ["ModuleNotFoundError: No module named 'settings_of_django'", "Name the directory"]),
            ("1 / 0\n", ["ZeroDivisionError: division by zero", "settings_of_django.py, line 1)"]),
            ("INSTALLED_APPS = ['burnt.jobs']\n", ["ZeroDivisionError: division by zero", "jobs.py, line 2)"]),
            (
                "INSTALLED_APPS = ['limpyd_jobs.contrib.django']\nLIMPYD_JOBS = {'QUEUE': ['oven']}\n",
                ["LIMPYD_JOBS has no setting 'QUEUE', but DATABASE", "limpyd_jobs.E001"],
            ),
        ],
    )
    def test_that_are_wrong_are_told_in_one_line(
        self, run: Run, application: Path, settings: str | None, texts: list[str]
    ) -> None:
        path = application / "settings_of_django.py"
        path.unlink() if settings is None else path.write_text(settings)
        done = run("limpyd-jobs", "backlog")
        assert_refused(done, "Django cannot be set up with settings_of_django: ", *texts)


class TestACallback:
    @pytest.mark.parametrize(
        ("callback", "text"),
        [
            ("handlers.hanlde", "AttributeError: module 'handlers' has no attribute 'hanlde'"),
            (
                "handler.handle",
                "ModuleNotFoundError: No module named 'handler'. Name the directory",
            ),
            ("bakery.bread.handle", "ModuleNotFoundError: No module named 'bakery.bread'\n"),
            ("burnt.jobs.handle", "ZeroDivisionError: division by zero"),
            ("handle", "a module and a name are needed"),
            ("handlers.looped", "The callback is a generator function: a worker would run nothing of it."),
        ],
    )
    @pytest.mark.parametrize("more", [[], ["--dry-run"]])
    def test_that_is_none_is_refused(self, work: Run, callback: str, text: str, more: list[str]) -> None:
        assert_refused(work(f"--callback={callback}", *more), text)


class TestRedis:
    def test_that_does_not_run_is_told_with_the_option_that_names_another(self, work: Run) -> None:
        done = work("--database=localhost:1", "--wait-for-redis=0.1")
        assert done.returncode == 1
        waiting, refusal = done.stderr.splitlines()
        assert "Connection refused. If no server runs there, name another one with --database" in waiting
        assert "Connection refused. Does a server run there? Name another one with --database or" in refusal

    def test_of_another_database_has_no_queues(
        self, work: Run, add_bread: Callable[[], None], redis_server: RedisServer
    ) -> None:
        add_bread()
        done = work(f"--database={redis_server.url}?db=3", "--max-duration=0.1")
        database = f"{redis_server.url}?db=3"
        assert (
            f"No queues yet (waiting for one named oven in {database}, where there are: none; are --qu" in done.stderr
        )

    def test_that_has_queues_of_other_names_only_is_told_with_these(
        self, run: Run, add_bread: Callable[[], None]
    ) -> None:
        add_bread()
        done = run("limpyd-jobs-worker", "--queues=ovne", "--max-duration=0.1")
        assert "No queues yet (waiting for one named ovne in" in done.stderr
        assert "where there are: oven; are --queues and --database right?)" in done.stderr

    def test_that_has_queues_of_other_names_only_is_told_before_a_burst_ends_too(
        self, run: Run, add_bread: Callable[[], None]
    ) -> None:
        add_bread()
        done = run("limpyd-jobs-worker", "--queues=ovne", "--burst")
        assert done.returncode == 0
        assert "No queues yet (there is none named ovne in" in done.stderr
        assert "where there are: oven; are --queues and --database right?)" in done.stderr
        assert done.stderr.endswith(": no job waits\n")
