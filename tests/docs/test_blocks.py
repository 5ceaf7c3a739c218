"""Every code block of README.rst and of the manual in docs/ is run or checked here, and what it shows is what happens.

Blocks of Python run in their order, one program per page, with the models on the server of the tests.
A block that begins with ``# myapp/jobs.py`` is that file, which all pages can import. What a program prints is what
its lines of ``#>`` show. A block without a check is a failure, and a command that is not run is named
in `NOT_RUN`, with the reason. Texts are checked in test_texts.py.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest
import redis
from docutils.core import publish_string
from docutils.writers.html5_polyglot import Writer
from pages import (
    BLOCKS,
    COMMANDS,
    FAIL,
    FILES,
    FLOW,
    PROGRAMS,
    REGISTER,
    ROOT,
    RUN_COMMAND,
    RUN_JOBS,
    SHELL,
    TEXTS,
    TRASH,
    UNITS,
    Block,
)

RENDERED_ALONE = ("README.rst", "CHANGELOG.rst", "CONTRIBUTING.rst", "SECURITY.rst")  # where there is no Sphinx


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

OPERATIONS = "docs/howto/operations.rst"
PREPARATIONS = {  # what is there before the first block of a page
    OPERATIONS: """
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


SHOWN_OWNER = "mailhost:19122:5f0c4f0f8d2a"
OWNER = re.compile(r"\S+:\d+:[0-9a-f]{12}\b")  # of a claim, if it is a worker
PROMPT = """
import code, json, sys

class Prompt(code.InteractiveConsole):
    def write(self, text):  # of a traceback
        raise SystemExit(text)

    def paste(self, block):
        for line in [*block.splitlines(), ""]:
            is_incomplete = self.push(line)
        assert not is_incomplete, block

sys.displayhook = lambda value: None
first, *others = json.loads(sys.argv[1])
prompt = Prompt()
prompt.paste(first)
for block in others:
    Prompt({**prompt.locals}).paste(block)
"""


NEEDED = {"docs/howto/fastapi.rst": ("fastapi", "httpx2"), "docs/howto/flask.rst": ("flask",)}


def skip_what_lacks_its_framework(page: str) -> None:
    for module in NEEDED.get(page, ()):
        if not find_spec(module):
            pytest.skip(f"{module} is not installed")


def shown_output(program: str) -> list[str]:
    return [match[1] for match in re.finditer(r"^ *#>(?: (.*))?$", program, re.MULTILINE)]


@pytest.mark.parametrize("page", dict.fromkeys(block.page for block in PROGRAMS))
def test_the_python_of_a_page_runs_and_prints_what_it_shows(
    page: str, application: Path, run_python: Callable[..., str]
):
    skip_what_lacks_its_framework(page)
    if page in PREPARATIONS:
        run_python("-c", dedent(PREPARATIONS[page]))
    program = "\n\n".join(block.text for block in PROGRAMS if block.page == page)
    (application / "program.py").write_text(program, encoding="utf-8")

    assert OWNER.sub(SHOWN_OWNER, run_python("program.py")).splitlines() == shown_output(program)


def test_each_block_for_3_am_works_at_a_prompt_after_the_first_one(run_python: Callable[..., str]):
    run_python("-c", dedent(PREPARATIONS[OPERATIONS]))
    blocks = [block.text for block in PROGRAMS if block.page == OPERATIONS]

    output = run_python("-c", PROMPT, json.dumps(blocks))
    assert OWNER.sub(SHOWN_OWNER, output).splitlines() == shown_output("\n".join(blocks))


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.file)
def test_the_files_of_the_page_can_be_imported(block: Block, run_python: Callable[..., str]):
    skip_what_lacks_its_framework(block.page)
    needs_django = "django.urls" in block.text or "contrib.django" in block.text
    before = "import django_setup; " if needs_django and "settings" not in block.file else ""
    run_python("-c", f"{before}import {block.file[:-3].replace('/', '.')}")


def test_workers_in_processes_of_their_own_call_the_observer_that_an_option_names(run_python: Callable[..., str]):
    run_python("-c", "from myapp.jobs import SendMail; SendMail.add_job('welcome:42', to='ann@example.com')")
    (command,) = (each for each in COMMANDS if "--observers=myapp.metrics.count" in each)
    arguments = [argument for argument in command[1:] if not argument.startswith("--pythonpath")]
    output = run_python("-c", RUN_COMMAND, *arguments, "--burst", "--no-title")
    assert "JobSucceeded" in output


@pytest.mark.usefixtures("our_plugin")
def test_the_tests_of_the_application_pass(run_python: Callable[..., str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # options of these tests
    assert " passed" in run_python("-m", "pytest", "-p", "no:valkey", "-p", "no:cacheprovider", "myapp")


# Commands

NOT_RUN = {
    "pip": "installs from the network; that the extra exists is checked instead",
    "python": "the whole example, all tests inside a test, benchmarks; that the programs exist is checked instead",
    ".": "enters a virtual environment",
    "ps": "shows the processes of the whole machine",
    "systemctl": "asks the systemd of the machine",
    "journalctl": "asks the systemd of the machine",
    "grep": "reads what ps shows, or a file of a worker that does not run",
    "kill": "asks a worker that does not run",
    "curl": "asks a dashboard, or a worker, that does not run",
    "uvicorn": "serves until it is stopped; that its application can be imported is a test",
    "export": "only sets a variable",
    "find": "looks at a file of a worker that does not run",
}


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


def test_units_name_the_modules_of_the_jobs() -> None:
    for command in in_units():
        assert "--job-modules=myapp.jobs" in command


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
    if "myapp.in_context" in " ".join(command):
        skip_what_lacks_its_framework("docs/howto/flask.rst")
    arguments = [argument.replace("/srv/myapp", str(application)) for argument in command[1:]]
    run_python("-c", RUN_COMMAND, *arguments, "--dry-run", "--no-title")


@commands_with("limpyd-jobs")
def test_the_commands_run(
    command: list[str], application: Path, run_python: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    arguments = [argument.replace("/srv/myapp", str(application)) for argument in command[1:]]
    if command[1] in ("jobs", "queues"):
        run_python("-c", "from myapp.jobs import SendMail; SendMail.add_job('welcome:42', to='ann@example.com')")
    if command[1] in ("pause", "resume") and "--list" not in command:
        run_python("-c", f"from limpyd_jobs import Queue; Queue.get_queue({command[2]!r})")
    if command[1:3] == ["jobs", "release"]:
        run_python(
            "-c", "from myapp.jobs import SendMail; SendMail.get('1').claim('of a worker that died', lease=0.01)"
        )
    if command[1] == "workers":
        run_python("-c", REGISTER)
    if command[1] == "web":
        arguments += ["--port=0", "--dry-run"]
        monkeypatch.setenv("LIMPYD_JOBS_WEB_TOKEN", "a-token-of-this-test")
    if command[1] == "metrics":
        arguments += ["--once"]
    if any(each.startswith("--stop-if-failing") for each in command):  # it waits for what workers make of the jobs
        arguments += ["--dry-run"]
    if command[1] == "errors":
        run_python("-c", FAIL)
    if command[1] == "flows":
        run_python("-c", FLOW)
    if "contrib.taskflow" in " ".join(command):
        run_python("-c", TRASH)
    assert run_python("-c", RUN_JOBS, *arguments)


@commands_with("redis-cli")
def test_redis_understands_its_commands(command: list[str], redis_client: redis.Redis):
    redis_client.execute_command(*command[1:])


@commands_with("pip")
def test_the_extras_to_install_exist(command: list[str]):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert command[:2] == ["pip", "install"]
    in_checkout, from_index = re.match(r"-e \.\[(.+)\]|redis-limpyd-jobs\[(.+)\]", " ".join(command[2:])).groups()
    assert {*(in_checkout or from_index).split(",")} <= {*setup["options.extras_require"]}


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
    "Unit": {"Description", "After", "Wants", "StartLimitIntervalSec"},
    "Service": {
        *("Type", "WatchdogSec", "User", "WorkingDirectory", "Environment", "ExecStart", "Restart", "RestartSec"),
        *("KillSignal", "KillMode", "TimeoutStopSec", "EnvironmentFile"),
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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_its_units(tmp_path: Path):
    units = [
        unit for unit in map(re.compile(r"# /etc/systemd/system/(\S+)\n").match, (each.text for each in UNITS)) if unit
    ]
    for unit in units:
        program = re.sub("ExecStart=\\S+", f"ExecStart={sys.executable}", unit.string)
        (tmp_path / unit[1].replace("@", "@1")).write_text(program)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())], capture_output=True, text=True
    )
    assert (len(units), done.returncode, done.stdout + done.stderr) == (3, 0, "")
