"""The names, keys, addresses and numbers in the manual are those of the code."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis
from actions import do_nothing, fail, let_its_worker_die
from docutils import nodes
from limpyd_extensions.related import RelatedModel
from pages import DOCUMENTS, MANUAL, PAGES, ROOT, RUN_JOBS, literals, read_table
from test_order_of_events import NAMES
from test_surface import ROWS

from limpyd_jobs import Error, Job, Queue, Schedule, Worker
from limpyd_jobs.redis.database import parse_database
from limpyd_jobs.transitions import MAX_DEFERRALS, UNCLAIMED_LEASE
from limpyd_jobs.workers import WorkerConfig
from limpyd_jobs.workers.backoff import FIRST_PAUSE, MAX_PAUSE
from limpyd_jobs.workers.maintenance.rescue import ORPHAN_SEEN_FOR


def test_every_documented_name_of_version_2_is_in_the_manual():
    documented = {row.item.split(".")[-1] for row in ROWS if not row.section.startswith("Not documented")}
    documented -= {*Worker.parameters, *(name for name in documented if name.startswith("-"))}  # made of the code
    missing = {name for name in documented if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", MANUAL)}
    assert missing == set()


# Where somebody starts a worker for the first time
BEGINNINGS = (
    *("tutorial", "tutorial_django", "crawler", "howto/functions", "howto/fastapi", "howto/flask", "howto/django"),
    *(f"howto/coming_from/{library}" for library in ("rq", "arq", "celery", "others")),
)


@pytest.mark.parametrize("page", BEGINNINGS)
def test_where_one_begins_it_is_said_that_finished_jobs_stay_and_that_a_worker_ends(page: str):
    text = " ".join(PAGES[f"docs/{page}.rst"].split())
    assert "--keep-success" in text
    assert "ended stay in Redis" in text
    assert f"ends after {Worker('mails').max_loops:,} jobs, with the exit status 0" in text


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


def test_the_numbers_of_the_guarantees_are_those_of_the_code():
    promised = " ".join(PAGES["docs/explanation/guarantees.rst"].split())
    rounds = Worker.lease / 4
    for text in (
        f"the lease and a quarter: {Worker.lease + rounds:g} seconds",
        f"sees twice in no list, {ORPHAN_SEEN_FOR:g} seconds apart",
        f"rescued {Worker.max_rescues} times",
        f"{Worker.max_rescues + 1} leases and {Worker.max_rescues + 1} quarters: "
        f"{(Worker.max_rescues + 1) * (Worker.lease + rounds) / 60:g} minutes",
        f"each after {FIRST_PAUSE:g} to {MAX_PAUSE:g} seconds",
        f"tried again, {MAX_DEFERRALS} times",
        f"a lease of {UNCLAIMED_LEASE / 3600:g} hours",
        f"ten leases: {10 * Worker.lease / 60:g} minutes",
    ):
        assert text in promised


def test_the_files_that_contributors_are_sent_to_exist():
    named = literals(DOCUMENTS["docs/contributing.rst"])
    paths = {name for name in named if re.fullmatch(r"[\w./]+(\.py|\.rst|/)", name)}
    assert len(paths) > 20
    assert {path for path in paths if not (ROOT / path).exists()} == set()


LEFT_RUNNING = """
from limpyd_jobs.models import BaseJobsModel
from myapp.jobs import SendMail

job = SendMail.add_job("welcome:42", to="ann@example.com")
redis = BaseJobsModel.get_connection()
redis.delete("limpyd-jobs:classes", *redis.keys("*:waiting"))
job.status.hset("r")
redis.hdel(job.key, "_queue_key")
"""


def test_the_check_of_the_upgrade_notes_repairs_what_version_2_left_running(
    run_python: Callable[..., str], redis_client: redis.Redis
):
    [command] = re.findall(r"\*\*Run\*\* ``limpyd-jobs (check [^`]*)``", PAGES["docs/upgrading.rst"])
    run_python("-c", LEFT_RUNNING)
    told = run_python("-c", RUN_JOBS, *command.split(), "--pause=0")
    assert "a worker of its queue puts it back at its next look" in told
    assert re.search(r"(\d+) found, \1 repaired:", told)
    [(ident, lapsed_at)] = redis_client.zrange("jobs:queue:1:_running", 0, -1, withscores=True)
    assert (ident, lapsed_at <= redis_client.time()[0] + 1) == ("myapp.jobs.SendMail:1", True)
