"""Job classes that no other process can import: who adds their jobs is warned."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from servers import RedisServer

from limpyd_jobs import Job

pytestmark = pytest.mark.usefixtures("redis_client")

INSIDE_A_FUNCTION = "is defined inside a function, so workers in other processes cannot import it"


class Outer:
    class Inner(Job):
        namespace = "outer"
        queue_name = "queue"

    class Known(Job):
        namespace = "outer"
        queue_name = "queue"


class TopJob(Job):
    namespace = "top"
    queue_name = "queue"


Known = Outer.Known


def test_a_class_inside_a_function_is_told_of_once() -> None:
    class LocalJob(TopJob):
        pass

    with pytest.warns(UserWarning, match=INSIDE_A_FUNCTION) as warned:
        LocalJob.add_job("1")
    assert [warning.filename for warning in warned] == [__file__]
    assert "at the top level of a module" in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalJob.add_job("2")
        LocalJob.add_jobs(["3", "4"])


def test_one_of_add_jobs_is_told_of_too() -> None:
    class OtherLocalJob(TopJob):
        pass

    with pytest.warns(UserWarning, match=INSIDE_A_FUNCTION) as warned:
        OtherLocalJob.add_jobs(["1", "2"])
    assert [warning.filename for warning in warned] == [__file__]


def test_a_class_inside_another_class_is_told_of() -> None:
    with pytest.warns(UserWarning, match=r"Inner is defined inside another class"):
        Outer.Inner.add_job("1")


@pytest.mark.parametrize("job_class", [Job, TopJob, Outer.Known])
def test_a_class_that_can_be_found_is_not(job_class: type[Job]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job_class.add_job("1", queue_name="queue")


PROGRAM = """
import sys
from limpyd_jobs import Job, Worker
from limpyd_jobs.models import BaseJobsModel
BaseJobsModel.database.from_url(sys.argv[1])

class ProgramJob(Job):
    queue_name = "queue"
    def run(self, queue):
        print("ran", self.identifier.hget())

ProgramJob.add_job("1")
ProgramJob.add_job("2")
Worker("queue", max_loops=2).run()
"""


def run_program(tmp_path: Path, url: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return subprocess.run([sys.executable, program, url], capture_output=True, text=True, timeout=60)


@pytest.mark.proof
def test_a_program_that_adds_and_runs_jobs_of_its_own_class_works(redis_server: RedisServer, tmp_path: Path) -> None:
    done = run_program(tmp_path, redis_server.url)
    assert done.stdout == "ran 1\nran 2\n"
    assert done.stderr.count("UserWarning: __main__.ProgramJob is defined in the program itself") == 1
    assert f"{tmp_path}/program.py:12: UserWarning" in done.stderr


@pytest.mark.proof
def test_a_program_with_a_server_of_its_own_has_no_other_workers_to_think_of(tmp_path: Path) -> None:
    done = run_program(tmp_path, "embedded://")
    assert done.stdout == "ran 1\nran 2\n"
    assert "UserWarning" not in done.stderr
