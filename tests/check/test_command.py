"""``limpyd-jobs check``, as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
import redis
from cases import each
from servers import RedisServer

from limpyd_jobs import Job, NotAudited, Queue, Schedule
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import audit
from limpyd_jobs.records.known_classes import KEY, KnownClass
from limpyd_jobs.scripts.jobs import COMMANDS

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

BAKERY = """
from limpyd_jobs import Error, Job, Queue

NUMBER = 3


class Bread(Job):
    namespace = "bakery"
    queue_name = "oven"


class Oven(Queue):
    namespace = "bakery"


class Burn(Error):
    namespace = "bakery"


class Cake(Job):
    namespace = "bakery"
    queue_model = Oven
    queue_name = "oven"
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> Run:
    """Run the command, on the server of the tests."""
    (tmp_path / "bakery.py").write_text(BAKERY)

    def start(*arguments: str, database: str = redis_server.url) -> subprocess.CompletedProcess[str]:
        return preloaded.run(
            [COMMAND, *arguments, *(["--pause=0"] if "check" in arguments else [])],
            cwd=tmp_path,
            env={**os.environ, "LIMPYD_JOBS_DATABASE": database, "PYTHONPATH": ""},
        )

    return start


@pytest.fixture
def orphan(redis_client: redis.Redis) -> str:
    """The ident of a job that waits in no list."""
    job = Job.add_job("a", "q")
    redis_client.delete("jobs:queue:1:waiting")
    return str(job.ident)


def test_a_sound_database_is_no_failure(run: Run, redis_server: RedisServer) -> None:
    Job.add_job("a", "q")
    done = run("check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing is wrong: 2 records looked at in ")
    assert done.stdout.endswith(f" s, in {redis_server.url}?db=0.\n")


@pytest.mark.proof
def test_what_is_wrong_is_a_failure_and_a_row_of_a_table(run: Run, orphan: str) -> None:
    done = run("check")
    assert (done.returncode, done.stderr) == (1, "")
    header, row, _, summary = done.stdout.splitlines()
    assert header.split() == ["what", "what", "is", "wrong", "repair"]
    assert row.split("  ") == [
        "I5",
        orphan,
        "is WAITING, but in no list",
        "with --repair: put at the beginning of its list",
    ]
    assert summary.startswith("1 found, 0 repaired: 2 records looked at in ")


def test_what_is_repaired_is_no_failure(run: Run, orphan: str) -> None:
    done = run("check", "--repair")
    assert done.returncode == 0
    assert "done: put at the beginning of its list" in done.stdout
    assert Queue.get_queue("q").waiting.lmembers() == [orphan]


@pytest.mark.proof
def test_what_cannot_be_repaired_is_a_failure(run: Run, redis_client: redis.Redis) -> None:
    redis_client.set("jobs:job:what", "x")
    done = run("check", "--repair")
    assert done.returncode == 1
    assert "1 found, 0 repaired, 1 cannot be repaired" in done.stdout


def test_what_a_repair_is_told_to_do_is_done(run: Run, redis_client: redis.Redis) -> None:
    job = Job.add_job("a", "q")
    job.cancel()
    job.status.hset("x")
    redis_client.rpush("jobs:queue:1:waiting", "nowhere.Gone:1")
    done = run("check", "--repair")
    assert done.returncode == 1
    assert "2 found, 0 repaired, 1 with --un" in done.stdout
    assert run("check", "--repair", "--unresolved=quarantine", "--unknown-status=delete").returncode == 0
    assert Queue.get_queue("q").quarantine.lmembers() == ["nowhere.Gone:1"]
    assert run("check").returncode == 0
    last, first = audit.last_entries(redis_client, 9)
    assert (last["verb"], last["filter"]) == ("check --repair", "unresolved=quarantine unknown_status=delete")
    assert [(each["done"], each["refused"]) for each in (last, first)] == [("2", "0"), ("0", "2")]


def test_the_report_as_json(run: Run, orphan: str, redis_server: RedisServer) -> None:
    done = run("check", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report.pop("seconds") > 0
    assert report == {
        "found": 1,
        "repaired": 0,
        "findings": [
            {
                "invariant": "I5",
                "model": "limpyd_jobs.models.Job",
                "subject": orphan,
                "kind": "in no list",
                "problem": "is WAITING, but in no list",
                "repair": "put at the beginning of its list",
                "repairable": True,
                "repaired": False,
                "option": "",
            }
        ],
        "warnings": [],
        "records": {
            "limpyd_jobs.models.Job": 1,
            "limpyd_jobs.models.Queue": 1,
            "limpyd_jobs.models.Error": 0,
            "limpyd_jobs.schedules.model.Schedule": 0,
            "limpyd_jobs.models.Presence": 0,
            "limpyd_jobs.models.WorkerPresence": 0,
        },
        "unchecked": [],
        "databases": [f"{redis_server.url}?db=0"],
    }


def test_what_is_not_text_is_printed_all_the_same(run: Run, redis_client: redis.Redis) -> None:
    Job.add_job("a", "q")
    redis_client.rpush("jobs:queue:1:waiting", b"\xff\n\x1b[31m")
    assert "\\xff" in run("check").stdout or "\\udcff\\n\\x1b" in run("check").stdout
    assert json.loads(run("check", "--json").stdout)["found"] == 1


def test_many_of_a_kind_are_not_all_shown(run: Run, redis_client: redis.Redis) -> None:
    for number in range(50):
        Job.add_job(str(number), "q")
    redis_client.delete("jobs:queue:1:waiting")
    lines = run("check").stdout.splitlines()
    assert len(lines) < 30
    assert "… and 30 more" in "\n".join(lines)


def test_the_progress_is_told_if_asked_for(run: Run, orphan: str) -> None:
    assert "looking again in 0 seconds" not in run("check").stderr
    assert "looking for job classes" in run("check", "--progress").stderr


def test_models_of_the_application_are_checked(run: Run, redis_client: redis.Redis, tmp_path: Path) -> None:
    redis_client.sadd("bakery:bread:collection", 5)
    options = (
        "--job-modules=bakery",
        f"--pythonpath={tmp_path}",
        "--queue-model=bakery.Oven",
        "--error-model=bakery.Burn",
    )
    done = run("check", "--json", *options)
    report = json.loads(done.stdout)
    assert {finding["model"] for finding in report["findings"]} == {"bakery.Bread"}
    assert {"bakery.Bread", "bakery.Oven", "bakery.Burn"} <= report["records"].keys()
    assert "limpyd_jobs.models.Queue" not in report["records"]


@pytest.mark.proof
def test_the_class_of_a_job_in_a_queue_is_imported(
    run: Run, redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # else it is found in the current directory
    Queue.get_queue("q")
    redis_client.rpush("jobs:queue:1:waiting", "bakery.Bread:1")
    assert "ModuleNotFoundError" in run("check").stdout
    assert "is in jobs:queue:1:waiting, but does not exist" in run("check", f"--pythonpath={tmp_path}").stdout


TRAP = """
open(__file__ + ".imported", "w").close()
from limpyd_jobs import Job

class Trap(Job):
    namespace = "trap"

class NoJob(dict): pass
class Other(NoJob): pass
"""


@pytest.fixture
def trapped(redis_client: redis.Redis, tmp_path: Path) -> Path:
    """What exists once a module was imported that what is stored names: in each place, a job class and another one."""
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "no_job.py").write_text(TRAP)
    key = f"jobs:queue:{Queue.get_queue('q').pk.get()}"
    for ident in ("trap.Trap:1", "trap.Other:1"):
        redis_client.rpush(f"{key}:waiting", ident)
        redis_client.zadd(f"{key}:delayed", {ident: 1})
        redis_client.zadd(f"{key}:_running", {ident: 1})
    schedule = Schedule.add("trap", Job, interval=3600, queue_name="q")
    redis_client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", "job_model_repr", "trap.Trap")
    return tmp_path / "trap.py.imported"


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "--repair"),
        ("pause", "q"),
        ("resume", "q"),
        ("schedules", "list"),
        ("schedules", "next", "trap"),
        ("schedules", "run-now", "trap"),
        ("schedules", "pause", "trap"),
        ("schedules", "resume", "trap"),
        ("schedules", "remove", "trap"),
    ],
)
def test_with_job_modules_nothing_is_imported_because_data_names_it(
    run: Run, trapped: Path, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    run(*arguments, "--job-modules=bakery", f"--pythonpath={tmp_path}")
    assert not trapped.exists()


def test_a_class_of_another_module_is_told_as_one_that_cannot_be_had(run: Run, trapped: Path, tmp_path: Path) -> None:
    done = run("check", "--json", "--job-modules=bakery", f"--pythonpath={tmp_path}")
    problems = {finding["subject"]: finding["problem"] for finding in json.loads(done.stdout)["findings"]}
    assert "is in none of the modules that jobs may come from: bakery" in problems["trap.Trap"]


def test_without_job_modules_only_what_defines_a_job_is_imported(
    run: Run, redis_client: redis.Redis, trapped: Path, tmp_path: Path
) -> None:
    redis_client.rpush("jobs:queue:1:waiting", "no_job.Other:1")
    run("check", f"--pythonpath={tmp_path}")
    assert trapped.exists()
    assert not (tmp_path / "no_job.py.imported").exists()


def test_another_database(run: Run, orphan: str, redis_server: RedisServer) -> None:
    assert run("check", f"--database=unix://{redis_server.socket}?db=3").returncode == 0
    assert run("check", f"--database={redis_server.url}", database="localhost:1").returncode == 1


@each(
    ("arguments", "message"),
    [
        (["check", "--nope"], "limpyd-jobs check: error: no such option: --nope"),
        (["check", "surplus"], "limpyd-jobs check: error: unexpected argument: 'surplus'"),
        (
            ["check", "--lease=-1"],
            "limpyd-jobs check: error: option --lease: The lease argument (-1) must be a positive",
        ),
        (
            ["check", "--unresolved=x"],
            "limpyd-jobs check: error: option --unresolved: 'x' is not one of leave, quarantine",
        ),
        (
            ["check", "--unknown-status=x"],
            "limpyd-jobs check: error: option --unknown-status: 'x' is not one of leave, req",
        ),
        (["check", "--database=host:port"], "limpyd-jobs check: error: option --database: "),
        (
            ["check", "--job-modules=no.such"],
            "limpyd-jobs check: error: option --job-modules: cannot import 'no.such': ",
        ),
        (["check", "--job-modules=,"], "limpyd-jobs check: error: option --job-modules: No module of jobs is named"),
        (["check", "--queue-model=no.such.Model"], 'limpyd-jobs check: error: Unable to import "queue_model"'),
        (["check", "--queue-model=limpyd_jobs.Job"], "limpyd-jobs check: error: option --queue-model: limpyd_jobs."),
        (["check", "--error-model=limpyd_jobs.Job"], "limpyd-jobs check: error: option --error-model: limpyd_jobs."),
        (["chek"], "limpyd-jobs: error: no such command: 'chek', one of: check"),
        (
            ["worker"],
            f"limpyd-jobs: error: no such command: 'worker', one of: {', '.join(COMMANDS)}; limpyd-jobs-worker runs a "
            "worker",
        ),
        ([], "limpyd-jobs: error: a command is needed, one of: check"),
        (["--nope"], "limpyd-jobs: error: no such option: --nope"),
        (["--versoin"], "limpyd-jobs: error: no such option: --versoin: is --version meant?"),
        (
            ["--database=localhost", "errors", "list"],
            "limpyd-jobs: error: --database stands before the command: write limpyd-jobs errors --database\n",
        ),
    ],
)
def test_a_command_line_that_is_wrong(run: Run, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_verb_without_its_command_is_answered_with_the_command(run: Run) -> None:
    assert run("explain").stderr.endswith("; limpyd-jobs-worker runs a worker: is jobs explain meant?\n")
    assert run("requeue").stderr.endswith(": is errors requeue or flows requeue or jobs requeue meant?\n")


def test_a_redis_that_does_not_answer(run: Run) -> None:
    done = run("check", database="localhost:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("limpyd-jobs check: error: cannot use Redis: ")
    assert done.stderr.count("\n") == 1


def test_a_variable_that_is_wrong(run: Run) -> None:
    done = run("check", database="host:port")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["--version"]])
def test_the_help(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "check" in done.stdout or "redis-limpyd-jobs 3" in done.stdout


def in_keys_of_version_2(client: redis.Redis, name: str, **fields: str) -> None:
    """A job of a class that is noted nowhere."""
    values = {"identifier": "a", "status": "r", "priority": "0", "queued": "1", **fields}
    client.sadd(f"{name}:collection", "1")
    client.hset(f"{name}:1:hash", mapping=values)
    for field, value in values.items():
        client.sadd(f"{name}:{field}:{value}", "1")


def test_a_class_that_is_not_known_but_has_jobs_is_a_finding(run: Run, redis_client: redis.Redis) -> None:
    in_keys_of_version_2(redis_client, "bakery:bread")
    redis_client.sadd("shop:status:s", "1")  # of another program
    done = run("check")
    assert done.returncode == 1
    assert re.search(r"bakery:bread:\* +1 jobs of this class are not looked at: the class is not imported", done.stdout)
    assert "1 found, 0 repaired, 1 with --job-modules=MODULE only" in done.stdout
    done = run("check", "--repair", "--lease=0", "--job-modules=bakery")
    assert "a worker of its queue puts it back at its next look, to be run again" in done.stdout
    assert "given a" not in done.stdout
    done = run("check", "--job-modules=bakery")
    assert (done.returncode, done.stdout.startswith("Nothing is wrong")) == (0, True)


def test_a_class_whose_jobs_stand_in_a_list_of_no_queue_is_resolved(run: Run, redis_client: redis.Redis) -> None:
    in_keys_of_version_2(redis_client, "bakery:bread", status="w")
    redis_client.rpush("jobs:queue:7:waiting", "bakery.Bread:1")
    report = json.loads(run("check", "--repair", "--json").stdout)
    assert report["records"]["bakery.Bread"] == 1
    assert {finding["kind"] for finding in report["findings"]} == {"in no list", "no owner", "wrong counter"}
    assert redis_client.lrange("jobs:queue:1:waiting", 0, -1) == ["bakery.Bread:1"]


def test_all_that_becomes_known_while_a_class_is_resolved_is_looked_at(run: Run, redis_client: redis.Redis) -> None:
    in_keys_of_version_2(redis_client, "bakery:bread", status="w")
    in_keys_of_version_2(redis_client, "bakery:cake")
    for name, queue, ident in (("a", "jobs:queue", "bakery.Bread:1"), ("oven", "bakery:oven", "bakery.Cake:2")):
        for field, value in (("name", name), ("priority", "0")):
            redis_client.hset(f"{queue}:1:hash", field, value)
            redis_client.sadd(f"{queue}:{field}:{value}", 1)
        redis_client.sadd(f"{queue}:collection", 1)
        redis_client.rpush(f"{queue}:1:waiting", ident)
    report = json.loads(run("check", "--json", "--lease=0", "--repair").stdout)
    assert (report["records"]["bakery.Bread"], report["records"]["bakery.Cake"]) == (1, 1)
    found = {(each["model"], each["subject"], each["kind"]) for each in report["findings"]}
    assert ("bakery.Cake", "bakery.Cake:1", "no lease") in found
    assert ("bakery.Cake", "bakery.Cake:2", "no such job") in found
    assert redis_client.zcard("bakery:oven:1:_running") == 1


def test_classes_and_models_that_the_database_knows_are_imported_or_named(run: Run, redis_client: redis.Redis) -> None:
    known = KnownClass("bakery.Bread", "bakery:bread", frozenset(), {}, {}, frozenset())
    redis_client.hset(KEY, mapping={"bakery.Bread": known.as_json()})
    in_keys_of_version_2(redis_client, "bakery:bread")
    done = run("check")
    assert "not looked at" not in done.stdout
    assert "is RUNNING, but" in done.stdout
    for kind, name, path in (("queues", "gone:oven", "gone.Oven"), ("errors", "gone:burn", "gone.Burn")):
        known = KnownClass(path, name, frozenset(), {}, {}, frozenset())
        redis_client.hset(KEY, f"{kind} {name}", known.as_json())
        redis_client.sadd(f"{name}:collection", "1")
    done = run("check", "--json")
    found = {(each["subject"], each["kind"], each["option"]) for each in json.loads(done.stdout)["findings"]}
    assert {
        ("gone.Oven", "queues not known", "--job-modules=MODULE"),
        ("gone.Burn", "errors not known", "--job-modules=MODULE"),
    } <= found
    other = run("check", "--json", "--job-modules=limpyd_jobs")
    [finding] = [each for each in json.loads(other.stdout)["findings"] if each["kind"] == "class not known"]
    assert (finding["subject"], "none of the modules that jobs may come from" in finding["problem"]) == (
        "bakery.Bread",
        True,
    )


def test_the_check_says_what_it_waits_for(redis_client: redis.Redis, jobs_database: object) -> None:
    redis_client.rpush("jobs:queue:1:waiting", "x")
    told: list[str] = []
    check(database=BaseJobsModel.database, pause=0.01, progress=told.append)
    assert [line for line in told if "waits for 1 s, then looks again at what seems wrong" in line]


@pytest.mark.parametrize("key", ["limpyd-jobs:classes", "limpyd-jobs:audit", "limpyd-jobs:audit:begun"])
def test_what_all_models_share_is_looked_at(key: str, redis_client: redis.Redis) -> None:
    Queue.get_queue("q")
    redis_client.delete(key)
    redis_client.set(key, "x")
    found = {each.subject: each.problem for each in check(database=BaseJobsModel.database, pause=0).findings}
    assert found[key].startswith("is a string, not a ")


@pytest.mark.parametrize("last", [f"{2**64 - 1}-{2**64 - 1}", f"{2**50}-0"])
def test_an_audit_whose_last_id_was_forged_is_named_and_repaired(redis_client: redis.Redis, last: str) -> None:
    Job.add_job("a", "q")
    redis_client.xadd(audit.KEY, {"verb": "before"})
    redis_client.xadd(audit.KEY, {"verb": "forged"}, id=last)
    if last.endswith("-0"):
        Queue.pause("q")
    else:
        with pytest.raises(NotAudited, match=r"exhausted .* check --repair puts that right\. To do it all the same"):
            Queue.pause("q")
        Queue.pause("q", unaudited=True)
    JobFilter().delete_all()
    outcomes = {each["verb"]: each.get("outcome") for each in audit.last_entries(redis_client, 9)}
    assert outcomes["delete"] == "complete"
    (entry, *_) = check(database=BaseJobsModel.database, pause=0).findings
    assert (entry.subject, entry.kind) == (audit.KEY, "audit ahead")
    assert check(True, database=BaseJobsModel.database, pause=0).left == []
    assert check(database=BaseJobsModel.database, pause=0).findings == []
    Queue.resume("q")
    entries = {(each["verb"], each["at"] != "") for each in audit.last_entries(redis_client, 9)}
    assert entries >= {("before", True), ("forged", True), ("delete", True), ("resume", True)}
