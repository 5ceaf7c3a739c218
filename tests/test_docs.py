"""Every code block of README.rst and of the manual in docs/ is run or checked here, and what it shows is what happens.

Blocks of Python run in their order, one program per page, with the models on the server of the tests.
A block that begins with ``# myapp/jobs.py`` is that file, which all pages can import. What a program prints is what
its lines of ``#>`` show. Blocks of shell commands, units and texts have their checks in the tables below; a block
without a check is a failure, and a command that is not run is named in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import configparser
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import preloaded
import pytest
import redis
from docutils import nodes
from docutils.core import publish_doctree, publish_string
from docutils.parsers.rst import Directive, directives, roles
from docutils.writers.html5_polyglot import Writer
from limpyd_extensions.related import RelatedModel
from running import run_task, working
from servers import RedisServer, free_port, wait_until
from test_surface import ROWS

from limpyd_jobs import STATUSES, Cancel, Error, Job, Queue, Requeue, Schedule, Worker
from limpyd_jobs.store import records
from limpyd_jobs.store.database import JobsDatabase, parse_database
from limpyd_jobs.transitions import MAX_DEFERRALS, UNCLAIMED_LEASE
from limpyd_jobs.workers import WorkerConfig
from limpyd_jobs.workers.backoff import FIRST, LONGEST
from limpyd_jobs.workers.maintenance.reconciler import PATIENCE

ROOT = Path(__file__).parent.parent
RENDERED_ALONE = ("README.rst", "CHANGELOG.rst", "CONTRIBUTING.rst", "SECURITY.rst")  # where there is no Sphinx
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.rst", ROOT / "CONTRIBUTING.rst", *sorted((ROOT / "docs").rglob("*.rst"))]
}
TUTORIAL = "docs/tutorial.rst"  # see test_tutorial.py
MANUAL = "\n".join(PAGES.values())
RUN_COMMAND = "import sys; sys.argv[0] = 'limpyd-jobs-worker'; from limpyd_jobs.scripts.worker import main; main()"

RUN_JOBS = "from limpyd_jobs.scripts.jobs import main; main()"


class Block(NamedTuple):
    """A code block: its language, its text, the page it is on, and the title it stands under."""

    language: str
    text: str
    page: str
    section: str

    @property
    def file(self) -> str | None:
        """The path of the Python file that the block is, if it is one."""
        match = re.match(r"# (myapp/\w+\.py)\n", self.text)
        return match and match[1]


def titles_above(node: nodes.Node) -> Iterator[str]:
    while node.parent:
        if isinstance(node, nodes.section):
            yield node[0].astext()
        node = node.parent


class OfSphinx(Directive):
    """A directive that docutils alone does not know, and which holds no block to be run."""

    has_content = True
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        return []


def read_page(path: str) -> nodes.document:
    settings = {"report_level": 5, "syntax_highlight": "none", "doctitle_xform": False}
    return publish_doctree(PAGES[path], source_path=str(ROOT / path), settings_overrides=settings)


for name in ("ref", "term"):
    roles.register_generic_role(name, nodes.emphasis)
for name in ("autoexception", "currentmodule", "glossary", "help", "modules", "parameters", "toctree", "verbs"):
    directives.register_directive(name, OfSphinx)
DOCUMENTS = {path: read_page(path) for path in PAGES if path != TUTORIAL}


def read_blocks() -> Iterator[Block]:
    for page, document in DOCUMENTS.items():
        for node in document.findall(nodes.literal_block):
            yield Block(node["classes"][-1], node.astext(), page, next(titles_above(node), page))


BLOCKS = [*read_blocks()]
FILES = [block for block in BLOCKS if block.file]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and not block.file]
SHELL = [block for block in BLOCKS if block.language == "bash"]
UNITS = [block for block in BLOCKS if block.language == "ini"]
TEXTS = [block for block in BLOCKS if block.language == "text"]


def test_every_block_is_of_a_kind_that_is_checked():
    assert [block for block in BLOCKS if block not in FILES + PROGRAMS + SHELL + UNITS + TEXTS] == []


def test_pages_that_are_shown_alone_render_without_a_warning():
    for page in RENDERED_ALONE:
        publish_string(
            (ROOT / page).read_text(encoding="utf-8"),
            source_path=page,
            writer=Writer(),
            settings_overrides={"report_level": 1, "halt_level": 1, "warning_stream": sys.stderr},
        )


# Python


STAND_INS = {"django/__init__.py": "def setup():\n    pass\n"}  # Django is no requirement of the tests

PREPARATIONS = {  # what is there before the first block of a page
    "docs/howto/operations.rst": """
        from limpyd_jobs import Worker
        from myapp.jobs import SendMail

        def work(loops):
            Worker(queues="mails", max_loops=loops).run()

        # yesterday: identifiers are used more than once, and a failure was mended
        for number in (2, 5, 6):
            SendMail.add_job(f"welcome:{number}", to="ann@example.com")
        mended = SendMail.add_job("welcome:1", to="ann")
        work(4)
        mended.to.hset("ann@example.com")
        mended.requeue()
        work(1)

        SendMail.add_job("welcome:2", to="bob")
        SendMail.add_job("welcome:3", to="eve")
        SendMail.add_job("welcome:4", to="dan@example.com")
        work(2)
        dead = Worker(queues="mails")
        dead.update_keys()
        dead.wait_for_job()  # and then it is never heard of again
        SendMail.add_job("welcome:5", to="ann@example.com")
        SendMail.add_job("welcome:6", to="ann@example.com")
        SendMail.add_job("welcome:7", to="ann@example.com", priority=5)
        SendMail.add_job("welcome:8", to="ann@example.com", delayed_for=600)
    """,
}


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A directory with the files of all pages."""
    for path, text in [*STAND_INS.items(), *((block.file, block.text) for block in FILES)]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
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


def shown_output(program: str) -> list[str]:
    return [match[1] for match in re.finditer(r"^ *#>(?: (.*))?$", program, re.MULTILINE)]


@pytest.mark.parametrize("page", dict.fromkeys(block.page for block in PROGRAMS))
def test_the_python_of_a_page_runs_and_prints_what_it_shows(
    page: str, application: Path, run_python: Callable[..., str]
):
    if page in PREPARATIONS:
        run_python("-c", dedent(PREPARATIONS[page]))
    program = "\n\n".join(block.text for block in PROGRAMS if block.page == page)
    (application / "program.py").write_text(program, encoding="utf-8")

    assert run_python("program.py").splitlines() == shown_output(program)


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.file)
def test_the_files_of_the_page_can_be_imported(block: Block, run_python: Callable[..., str]):
    run_python("-c", f"import {block.file[:-3].replace('/', '.')}")


# Commands


NOT_RUN = {
    "pip": "installs from the network; that the extra exists is checked instead",
    "python": "the whole example, all tests inside a test, benchmarks; that the programs exist is checked instead",
    ".": "enters a virtual environment",
    "ps": "shows the processes of the whole machine",
    "systemctl": "asks the systemd of the machine",
    "journalctl": "asks the systemd of the machine",
    "grep": "reads what ps shows",
    "kill": "asks a worker that does not run",
}


def commands_of(block: Block) -> Iterator[list[str]]:
    for line in block.text.splitlines():
        for command in re.split(r" && | \| ", line):
            yield shlex.split(command)


COMMANDS = [command for block in SHELL for command in commands_of(block)]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.section)
def test_the_shell_understands_the_commands(block: Block):
    subprocess.run(["bash", "-n", "-c", block.text], check=True, capture_output=True)


def test_every_command_is_run_or_said_not_to_be():
    assert {command[0] for command in COMMANDS} - set(NOT_RUN) == {"limpyd-jobs", "limpyd-jobs-worker", "redis-cli"}


def in_units() -> Iterator[list[str]]:
    for block in UNITS:
        for section in read_unit(block).values():
            for key in ("ExecStart", "command"):
                if key in section:
                    yield shlex.split(section[key])


def read_unit(block: Block) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, empty_lines_in_values=False)
    unit.optionxform = str
    unit.read_string(block.text)
    return unit


def commands_with(program: str) -> pytest.MarkDecorator:
    """Run a test for each of the page's commands that start this program."""
    commands = [command for command in [*COMMANDS, *in_units()] if Path(command[0]).name == program]
    return pytest.mark.parametrize("command", commands, ids=" ".join)


@commands_with("limpyd-jobs-worker")
def test_the_command_lines_of_workers_start_a_worker(
    command: list[str], application: Path, run_python: Callable[..., str]
):
    arguments = [argument.replace("/srv/myapp", str(application)) for argument in command[1:]]
    run_python("-c", RUN_COMMAND, *arguments, "--dry-run", "--no-title")


@commands_with("limpyd-jobs")
def test_the_commands_run(command: list[str], application: Path, run_python: Callable[..., str]):
    arguments = [argument.replace("/srv/myapp", str(application)) for argument in command[1:]]
    assert run_python("-c", RUN_JOBS, *arguments)


@commands_with("redis-cli")
def test_redis_understands_its_commands(command: list[str], redis_client: redis.Redis):
    redis_client.execute_command(*command[1:])


@commands_with("pip")
def test_the_extras_to_install_exist(command: list[str]):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert command[:3] == ["pip", "install", "-e"]
    assert command[3].removeprefix(".[").removesuffix("]") in setup["options.extras_require"]


@commands_with("python")
def test_the_programs_exist_and_the_selections_of_tests_select_some(command: list[str], run_python: Callable[..., str]):
    program, *arguments = command[1:]
    if program == "-m":
        assert find_spec(arguments[0])
        return
    compile((ROOT / program).read_text(encoding="utf-8"), program, "exec")
    if program.startswith("benchmarks/"):
        assert run_python(program, *arguments, "--help", cwd=ROOT).startswith(f"usage: {program}")
    elif arguments:
        assert "test_" in run_python(program, *arguments, "--collect-only", "-q", cwd=ROOT)


# Units


UNIT_KEYS = {
    "Unit": {"Description", "After", "Wants"},
    "Service": {
        *("Type", "WatchdogSec", "User", "WorkingDirectory", "Environment", "ExecStart", "Restart", "RestartSec"),
        *("KillSignal", "KillMode", "TimeoutStopSec"),
    },
    "Install": {"WantedBy"},
    "program:myapp-worker": {
        *("command", "process_name", "numprocs", "user", "directory", "environment", "autorestart"),
        *("startsecs", "stopsignal", "stopwaitsecs", "stopasgroup"),
    },
}


@pytest.mark.parametrize("block", UNITS, ids=lambda block: block.section)
def test_units_use_only_keys_that_systemd_and_supervisord_know(block: Block):
    unit = read_unit(block)
    assert unit.sections()
    for name in unit.sections():
        assert set(unit[name]) <= UNIT_KEYS[name]


# Texts


def check_logs(text: str, run_python: Callable[..., str]) -> None:
    run_python("-c", "from myapp.jobs import SendMail; SendMail.add_job('welcome:42', to='ann@example.com')")
    logged = run_python("-c", RUN_COMMAND, "--queues=mails", "--max-loops=1", "--no-title", of="stderr")
    assert numbers_aside(text).splitlines() == numbers_aside(logged).splitlines()


def check_log_of_command(text: str, run_python: Callable[..., str]) -> None:
    command, _, shown = text.partition("\n")
    jobs = [{"identifier": "welcome:42", "to": "ann@example.com"}, {"identifier": "welcome:43", "to": "bob"}]
    run_python("-c", f"from myapp.jobs import SendMail; SendMail.add_jobs({jobs})")
    logged = run_python("-c", RUN_COMMAND, *shlex.split(command)[2:], of="stderr")
    assert numbers_aside(shown).splitlines() == numbers_aside(logged).splitlines()


def check_report(text: str, run_python: Callable[..., str]) -> None:
    """The first lines are as shown, up to numbers and the name of the claim; so are the names of the threads."""
    program = """
        import os, signal
        from limpyd_jobs import Worker
        from myapp.jobs import SendMail
        SendMail.add_job("welcome:42", to="ann@example.com")
        Worker("mails", callback=lambda *_: os.kill(os.getpid(), signal.SIGUSR1), max_loops=1).run()
    """
    logged = run_python("-c", dedent(program), of="stderr")
    shown, told = (
        re.sub(r"claim \S+", "claim", numbers_aside(each.partition("] SIGUSR1")[2])) for each in (text, logged)
    )
    assert shown.splitlines()[:3] == told.splitlines()[:3]
    assert set(re.findall("^thread .*:$", shown, re.MULTILINE)) <= set(re.findall("^thread .*:$", told, re.MULTILINE))


SHORT_LIVES = """
import os
import signal

from limpyd_jobs import Job


def act(job, queue):
    deed = job.identifier.hget()
    if deed == "die":
        Job.add_job("end", "mails", delayed_for=1)
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "end":
        os.kill(os.getppid(), signal.SIGTERM)
"""


def check_log_of_parent(text: str, application: Path, run_python: Callable[..., str]) -> None:
    (application / "short_lives.py").write_text(SHORT_LIVES)
    run_python("-c", "from limpyd_jobs import Job; Job.add_job('return', 'mails'); Job.add_job('die', 'mails')")
    arguments = ["--queues=mails", "--processes=2", "--callback=short_lives.act", "--max-loops=1", "--no-title"]
    logged = numbers_aside(run_python("-c", RUN_COMMAND, *arguments, of="stderr")).splitlines()
    assert [line for line in numbers_aside(text).splitlines() if line not in logged] == []


def numbers_aside(text: str) -> str:
    return re.sub(r"\d+", "0", re.sub(r"\d+:\d+:\d+([.,]\d+)?", "0:00:00", text))


TELLING_CONFIG = """
from limpyd_jobs.workers import WorkerConfig

class TellingConfig(WorkerConfig):
    def update_proc_title(self, worker=None):
        print(self.get_proc_title())
"""


def check_titles(text: str, application: Path, run_python: Callable[..., str]) -> None:
    (application / "telling.py").write_text(TELLING_CONFIG)
    run_python("-c", "from myapp.jobs import SendMail; SendMail.add_job('welcome:42', to='ann@example.com')")
    arguments = ["--worker-config=telling.TellingConfig", "--queues=mails,photos", "--max-loops=1"]
    titles = numbers_aside(run_python("-c", RUN_COMMAND, *arguments)).splitlines()
    assert [line for line in numbers_aside(text).splitlines() if line not in titles] == []


def check_redis_settings(text: str, redis_binary: str) -> None:
    settings = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with RedisServer(redis_binary, *arguments) as server, server.client() as client:
        assert {name: value for setting in settings for name, value in client.config_get(setting).items()} == settings


def check_states(text: str) -> None:
    assert {name.lower() for name in STATUSES} <= {*re.findall(r"\w+", text)}


TEXT_CHECKS: dict[str, Callable[..., None]] = {  # by the title above the text
    "What you get": check_log_of_command,
    "The life of a job": check_states,
    "Logs": check_logs,
    "What does it do right now?": check_report,
    "Several processes": check_log_of_parent,
    "Process titles": check_titles,
    "Redis settings": check_redis_settings,
}


@pytest.mark.parametrize("block", TEXTS, ids=lambda block: block.section)
def test_the_texts_are_what_a_user_will_see(block: Block, request: pytest.FixtureRequest):
    check = TEXT_CHECKS[block.section]
    fixtures = [*inspect.signature(check).parameters][1:]
    check(block.text, *(request.getfixturevalue(name) for name in fixtures))


# What the prose says


def test_every_documented_name_of_version_2_is_in_the_manual():
    documented = {row.item.split(".")[-1] for row in ROWS if not row.section.startswith("Not documented")}
    documented -= {*Worker.parameters, *(name for name in documented if name.startswith("-"))}  # made of the code
    missing = {name for name in documented if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", MANUAL)}
    assert missing == set()


@pytest.mark.parametrize("cls", [Job, Queue, Error, Schedule, Worker])
def test_every_public_name_of_a_class_is_in_the_manual(cls: type):
    names = {name for name in {*dir(cls), *getattr(cls, "_fields", ())} - {*dir(RelatedModel)} if name[0] != "_"}
    names -= {*Worker.parameters}  # a table of the manual is made of them
    missing = {name for name in names - {"cacheable"} if not re.search(rf"(?<![\w-]){name}(?![\w-])", MANUAL)}
    assert missing == set()


@pytest.mark.parametrize("cls", [Job, Queue, Error, Worker, WorkerConfig])
def test_every_name_that_is_new_in_a_class_stands_under_upgrading(cls: type):
    names = {*dir(cls), *getattr(cls, "_fields", ())} - {*dir(RelatedModel), "pk"}
    hooks = {name.removeprefix("job.") for name in NAMES if name.startswith("job.on_")} if cls is Job else set()
    new = {name for name in names | hooks if name[0] != "_"} - {row.item.split(".")[-1] for row in ROWS}
    listed = PAGES["docs/upgrading.rst"].partition("New names\n")[2]
    assert {name for name in new if not re.search(rf"``{name}``", listed)} == set()


def literals(node: nodes.Node) -> list[str]:
    return [literal.astext() for literal in node.findall(nodes.literal)]


def read_table(title: str) -> dict[str, nodes.Node]:
    """The table under a title: its second column by its first."""
    documents = DOCUMENTS.values()
    (table,) = (table for each in documents for table in each.findall(nodes.table) if title in titles_above(table))
    (body,) = table.findall(nodes.tbody)
    return {first.astext(): second for first, second in body.findall(nodes.row)}


EVENTS = {when: literals(called) for when, called in read_table("The order of events").items()}
seen: list[str] = []


def watched(cls: type, names: set[str], prefix: str = "") -> dict[str, Callable[..., Any]]:
    """Methods that do what those of the class do, and note that they were called."""

    def watch(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(prefix + name)
            return getattr(cls, name, lambda *_: None)(self, *args, **kwargs)

        return method

    return {name: watch(name) for name in names}


class Obedient(Job):
    """Does what its identifier says."""

    namespace = "readme"
    queue_name = "readme"

    def run(self, queue):
        deed = self.identifier.hget()
        if deed == "raise":
            raise ValueError("as told")
        if deed == "Requeue":
            raise Requeue
        if deed == "Cancel":
            raise Cancel
        if deed in STATUSES:
            self.status.hset(STATUSES[deed])


NAMES = {name for names in EVENTS.values() for name in names}
WatchedWorker = type("WatchedWorker", (Worker,), watched(Worker, {name for name in NAMES if "." not in name}))


class WatchedJob(Obedient):
    namespace = "readme"
    locals().update(watched(Obedient, {name[4:] for name in NAMES if name.startswith("job.")}, "job."))


@pytest.mark.parametrize(
    ("identifier", "found", "requeue_times", "moments"),
    [
        ("return", "WAITING", 0, ["a job is to be run", "it returns"]),
        ("raise", "WAITING", 0, ["a job is to be run", "it raises"]),
        ("raise", "WAITING", 1, ["a job is to be run", "it raises", "and may be run again"]),
        ("Requeue", "WAITING", 0, ["a job is to be run", "it raises Requeue"]),
        ("Cancel", "WAITING", 0, ["a job is to be run", "it is canceled, or does not wait, or raises Cancel"]),
        ("CANCELED", "WAITING", 0, ["a job is to be run", "it is canceled, or does not wait, or raises Cancel"]),
        ("DELAYED", "WAITING", 0, ["a job is to be run", "it is delayed"]),
        ("return", "CANCELED", 0, ["it is canceled, or does not wait, or raises Cancel"]),
        ("return", "SUCCESS", 0, ["it is canceled, or does not wait, or raises Cancel"]),
        ("return", "DELAYED", 0, ["it is delayed"]),
    ],
)
def test_events_come_in_the_order_of_the_manual(
    identifier: str, found: str, requeue_times: int, moments: list[str], redis_client: redis.Redis
):
    job = WatchedJob.add_job(identifier)
    if found != "WAITING":
        job.status.hset(STATUSES[found])
    seen.clear()

    WatchedWorker("readme", max_loops=1, requeue_times=requeue_times, terminate_gracefuly=False).run()

    moments = ["the worker starts", "until must_stop says so", *moments, "the worker ends"]
    assert seen == [name for moment in moments for name in EVENTS[moment] if name != "must_stop"]


def test_events_of_jobs_that_were_not_finished_come_in_the_order_of_the_manual(redis_client: redis.Redis):
    let_its_worker_die("return", "readme", WatchedJob)
    seen.clear()
    WatchedWorker("readme", max_loops=1, terminate_gracefuly=False).run()
    assert_contains(seen, EVENTS["its worker died, and another one found it"])

    WatchedJob.add_job("released")
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        WatchedWorker("readme", callback=interrupt, terminate_gracefuly=False).run()
    assert_contains(seen, EVENTS["it is interrupted, as the worker has to end"])


def assert_contains(events: list[str], expected: list[str]) -> None:
    """Find the expected events of one job in a row, up to those that come only the last time."""
    expected = [name for name in expected if name != "job_error"]
    assert expected in [events[start : start + len(expected)] for start in range(len(events))], events


def documented_keys() -> dict[str, str]:
    """The patterns of the keys that the reference lists, each with its type."""
    keys = {}
    for row in DOCUMENTS["docs/reference/keys.rst"].findall(nodes.row):
        first, kind, _ = row.children
        for key in literals(first):
            pattern = re.sub(
                r"<\w+>", ".+", re.sub("^jobs:(job|error|schedule):", r"jobs:\\w+:", key).replace("…", ".+")
            )
            keys[pattern] = kind.astext().replace("sorted set", "zset")
    return keys


def test_all_keys_that_are_made_are_in_the_reference(redis_client: redis.Redis):
    Schedule.add("nightly", Job, cron="0 3 * * *", queue_name="a")
    Queue.pause("b")
    Job.add_job("later", "a", delayed_for=60)
    Queue.get_queue("a").quarantine.rpush("garbage")
    Queue.get_queue("a").deferrals.hset("myapp.jobs.SendMail:2", 1)
    for code in (do_nothing, fail):
        Job.add_job("job", "a")
        Worker("a", callback=code, max_loops=1).run()
    let_its_worker_die("running", "a")
    Worker("b", max_duration=0.1).run()

    documented = documented_keys()
    for key in redis_client.scan_iter():
        kinds = [kind for pattern, kind in documented.items() if re.fullmatch(pattern, key)]
        assert redis_client.type(key) in kinds, key


def test_the_forms_of_a_database_are_understood():
    forms = [form for cell in read_table("Databases") for form in cell.split(", ")]
    assert forms
    for form in forms:
        parse_database(form)


class Careless(Worker):
    """Has a hook and a maintenance task that fail."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._engine.pruner.run = self.job_success

    def job_success(self, *args):
        raise RuntimeError("oops")


def do_nothing(job: Job, queue: Queue) -> None:
    pass


def fail(job: Job, queue: Queue) -> None:
    raise ValueError("oops")


def interrupt(job: Job, queue: Queue) -> None:
    raise KeyboardInterrupt


def let_its_worker_die(identifier: str, queue_name: str, job_class: type[Job] = Job) -> Job:
    """Add a job, and claim it with a lease that lapsed; return it."""
    job = job_class.add_job(identifier, queue_name)
    worker = Worker(queue_name)
    worker.update_keys()
    worker.wait_for_job()
    Queue.get_queue(queue_name).running.zadd({job.ident: 1})
    return job


def provoke_what_is_wrong_with_jobs() -> None:
    queue = Queue.get_queue("a")
    queue.waiting.rpush("myapp.jobs.SendMail:1", "limpyd_jobs.models.Job:12", "garbage")
    queue.delayed.zadd({"myapp.jobs.SendMail:2": 1, "more garbage": 1})
    queue.deferrals.hset("myapp.jobs.SendMail:2", 60)
    Job.add_job("canceled", "a").status.hset(STATUSES.CANCELED)
    Job.add_job("a", "a")
    Worker("a", callback=fail, requeue_times=1, max_loops=2).run()
    Job.add_job("itself", "itself")
    Worker("itself", callback=lambda job, queue: job.enqueue_or_delay("itself", 0), max_loops=1).run()
    Job.add_job("b", "b")
    Careless("b", callback=do_nothing, max_loops=1).run()
    Job.add_job("c", "c")
    with pytest.raises(KeyboardInterrupt):
        Worker("c", callback=interrupt).run()


def provoke_what_happens_when_workers_die(caplog: pytest.LogCaptureFixture) -> None:
    let_its_worker_die("rescued", "rescued")
    Worker("rescued", callback=do_nothing, max_loops=1).run()
    let_its_worker_die("lost", "lost")
    Worker("lost", max_rescues=0, max_duration=0.1).run()

    broken = let_its_worker_die("broken", "broken")
    Queue.get_connection().set(broken.key, "of a wrong type")
    Worker("broken", max_duration=0.1).run()
    Queue.get_connection().delete(broken.key)

    def lose_the_claim(job: Job, queue: Queue) -> None:
        job.claim_token.hset("of another worker")
        wait_until(lambda: "lost its claim" in caplog.text)

    Job.add_job("stolen", "stolen")
    Worker("stolen", callback=lose_the_claim, lease=0.2, max_loops=1).run()


def provoke_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.maintenance.reconciler.PATIENCE", 0.01)
    Queue.get_queue("nowhere", priority=1)
    Queue.get_queue("elsewhere", priority=1)
    homeless = Job.add_job("homeless", "nowhere", priority=1)
    homeless.queue_key.delete()
    for identifier in ("orphan", "second orphan"):
        Job.add_job(identifier, "orphans")
    for name, priority in (("nowhere", 1), ("orphans", 0)):
        Queue.get_queue(name, priority).waiting.delete()
    Queue.get_connection().delete("jobs:queue:reconcile_lock")
    Worker("orphans", callback=do_nothing, max_loops=2).run()


def provoke_what_is_wrong_with_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    late, bad = (Schedule.add(name, Job, interval=60, queue_name="s", misfire_grace_time=0) for name in ("late", "bad"))
    again = Schedule.add("again", Job, interval=60, queue_name="s")
    again.run_now()
    for schedule in (late, bad, again):
        records.set_schedule(Schedule, schedule.pk.get(), "1", {"next_run": "1970-01-01 00:00:01"})
    bad.job_model_repr.hset("not.Here")
    monkeypatch.setattr(Obedient, "schedules", {"wrong": {"cron": "61 3 * * *"}}, raising=False)
    run_task(Worker("s"), "scheduler")
    for schedule in (late, bad, again):
        schedule.delete()


def provoke_failures_of_redis(database: JobsDatabase, binary: str, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(binary, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru", port=free_port()) as server:
        database.connection.close()
        database.connect(host="127.0.0.1", port=server.port)

        def run_without_redis(lease: float, wait_for: str) -> None:
            def stop_redis(job: Job, queue: Queue) -> None:
                server.stop()
                wait_until(lambda: wait_for in caplog.text)
                worker.end_forced = True

            Job.add_job("d", "d")
            worker = Worker("d", callback=stop_redis, lease=lease)
            worker.run()
            server.start()

        run_without_redis(lease=0.2, wait_for="lease not renewed")
        run_without_redis(lease=2, wait_for="")
        Queue.get_queue("d")
        type("Unlucky", (Worker,), {"run_started": lambda self: server.stop()})("d", max_duration=0.5).run()


def test_the_log_says_what_the_manual_says(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    jobs_database: JobsDatabase,
    redis_binary: str,
):
    Worker("nobody", max_duration=0.1).run()
    provoke_what_is_wrong_with_jobs()
    provoke_what_happens_when_workers_die(caplog)
    provoke_orphans(monkeypatch)
    provoke_what_is_wrong_with_schedules(monkeypatch)
    Job.add_job("endless", "endless")
    with working(Worker("endless", callback=do_nothing, job_timeout=1, max_loops=1, terminate_gracefuly=False)):
        pass
    provoke_failures_of_redis(jobs_database, redis_binary, caplog)

    for message in read_table("What does the log say?"):
        pattern = re.escape(message).replace("…", ".*")
        assert any(re.search(pattern, line) for line in caplog.messages), message


def test_the_numbers_of_the_guarantees_are_those_of_the_code():
    promised = " ".join(PAGES["docs/explanation/guarantees.rst"].split())
    rounds = Worker.lease / 4
    for text in (
        f"the lease and a quarter: {Worker.lease + rounds:g} seconds",
        f"sees twice in no list, {PATIENCE:g} seconds apart",
        f"rescued {Worker.max_rescues} times",
        f"{Worker.max_rescues + 1} leases and {Worker.max_rescues + 1} quarters: "
        f"{(Worker.max_rescues + 1) * (Worker.lease + rounds) / 60:g} minutes",
        f"each after {FIRST:g} to {LONGEST:g} seconds",
        f"tried again, {MAX_DEFERRALS} times",
        f"a lease of {UNCLAIMED_LEASE / 3600:g} hours",
        f"ten leases: {10 * Worker.lease / 60:g} minutes",
    ):
        assert text in promised
