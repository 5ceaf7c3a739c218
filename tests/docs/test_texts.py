"""What the manual shows of logs, titles and settings is what a user will see."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from pages import FAIL, REGISTER, RUN_COMMAND, RUN_JOBS, TEXTS, Block, numbers_aside
from servers import RedisServer

from limpyd_jobs import STATUSES, ConfigurationException, Job, job
from limpyd_jobs.query import backlog
from limpyd_jobs.redis.database import JobsDatabase


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
import time

from limpyd_jobs import Job


def act(job, queue):
    deed = job.identifier.hget()
    if deed == "die":
        Job.add_job("end", "mails", delayed_for=1)
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "end":
        end_all()


def end_all():
    heed = signal.getsignal(signal.SIGTERM)
    heeded = []
    signal.signal(signal.SIGTERM, lambda *args: heeded.append(heed(*args)))
    os.kill(os.getppid(), signal.SIGTERM)
    while not heeded:  # until the parent has passed it on
        time.sleep(0.01)
"""


def check_log_of_parent(text: str, application: Path, run_python: Callable[..., str]) -> None:
    (application / "short_lives.py").write_text(SHORT_LIVES)
    run_python("-c", "from limpyd_jobs import Job; Job.add_job('return', 'mails'); Job.add_job('die', 'mails')")
    arguments = ["--queues=mails", "--processes=2", "--callback=short_lives.act", "--max-loops=1", "--no-title"]
    logged = numbers_aside(run_python("-c", RUN_COMMAND, *arguments, of="stderr")).splitlines()
    assert [line for line in numbers_aside(text).splitlines() if line not in logged] == []


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


def check_users(text: str, redis_binary: str) -> None:
    with RedisServer(redis_binary) as server, server.client() as client:
        for _, name, *rights in (line.split() for line in text.splitlines() if not line.startswith("#")):
            assert client.execute_command("ACL", "SETUSER", name, *rights)


def check_states(text: str) -> None:
    assert {name.lower() for name in STATUSES} <= {*re.findall(r"\w+", text)}


def check_groups(text: str, run_python: Callable[..., str]) -> None:
    run_python("-c", FAIL)
    shown = run_python("-c", RUN_JOBS, "errors", "groups")
    assert numbers_aside(text).splitlines() == numbers_aside(shown).splitlines()


def check_workers(text: str, run_python: Callable[..., str]) -> None:
    """The columns are as shown, up to numbers and times."""
    run_python("-c", REGISTER)
    shown, told = (
        [re.sub(r"\b0(\.0)? (ms|s|min|h|d)\b", "0 s", line).split() for line in numbers_aside(each).splitlines()]
        for each in (text, run_python("-c", RUN_JOBS, "workers", "list"))
    )
    assert shown == told


def check_backlog(text: str, jobs_database: JobsDatabase) -> None:
    Job.add_job("welcome:42", "mails")
    shown, told = json.loads(text), backlog("mails").as_dict()
    assert [*shown] == [*told]
    assert [*shown["queues"]["mails"]] == [*told["queues"]["mails"]]


def check_refused_function(text: str) -> None:
    source = "\n" * 11 + "@job\ndef greet(*names: str) -> None: ...\n"
    names = {"__name__": "myapp.jobs", "job": job}
    with pytest.raises(ConfigurationException) as caught:
        exec(compile(source, "/srv/myapp/jobs.py", "exec"), names)
    assert str(caught.value) == text


TEXT_CHECKS: dict[str, Callable[..., None]] = {  # by the title above the text
    "What you get": check_log_of_command,
    "Errors by cause": check_groups,
    "See and steer workers": check_workers,
    "The life of a job": check_states,
    "Logs": check_logs,
    "What does it do right now?": check_report,
    "Several processes": check_log_of_parent,
    "Process titles": check_titles,
    "Redis settings": check_redis_settings,
    "Users of Redis and their rights": check_users,
    "A backlog for autoscalers": check_backlog,
    "What its parameters may be": check_refused_function,
}


@pytest.mark.parametrize("block", TEXTS, ids=lambda block: block.section)
def test_the_texts_are_what_a_user_will_see(block: Block, request: pytest.FixtureRequest):
    check = TEXT_CHECKS[block.section]
    fixtures = [*inspect.signature(check).parameters][1:]
    check(block.text, *(request.getfixturevalue(name) for name in fixtures))
