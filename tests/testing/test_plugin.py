"""The plugin of pytest, in runs of pytest of their own."""

from __future__ import annotations

import pytest
import redis
from servers import RedisServer

pytest_plugins = ["pytester"]

JOBS = """
from limpyd_jobs import Argument, Job

class Mail(Job):
    queue_name = "mails"
    to = Argument()

    def run(self, queue):
        if self.arguments.to == "bob":
            raise ValueError("bob is not an address")
        return f"sent to {self.arguments.to}"
"""


OTHERS = ("valkey", "cacheprovider", "anyio", "hypothesispytest", "timeout")  # most of the time of a start


@pytest.fixture
def application(our_plugin: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the jobs of an application."""
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in OTHERS))
    pytester.makepyfile(jobs=JOBS)
    pytester.syspathinsert()
    return pytester


@pytest.mark.proof
def test_each_test_has_an_empty_database_and_none_touches_another_one(
    application: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    redis_client: redis.Redis,
) -> None:
    redis_client.set("of the developer", "precious")
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", redis_server.url)
    application.makepyfile("""
        import os, subprocess, sys

        import pytest
        from jobs import Mail
        from limpyd_jobs import STATUSES
        from limpyd_jobs.models import BaseJobsModel
        from limpyd_jobs.testing import assert_added, drain

        @pytest.mark.parametrize("number", [1, 2])
        def test_add(limpyd_jobs_database, number):
            assert not limpyd_jobs_database.connection.keys()
            assert limpyd_jobs_database is BaseJobsModel.database
            job = Mail.add_job("1", to="ann")
            assert_added(Mail, to="ann")
            assert drain().success == 1
            assert len(Mail.collection(status=STATUSES.SUCCESS)) == 1

        def test_other_programs(limpyd_jobs_database):
            Mail.add_job("1", to="ann")
            count = "from jobs import Mail; print(len(Mail.collection()))"
            assert subprocess.check_output([sys.executable, "-c", count], text=True) == "1\\n"

        def test_without():
            assert os.environ["LIMPYD_JOBS_DATABASE"].endswith("redis.sock")
            assert not {"jobs", "Mail"} & set(BaseJobsModel.database.connection.keys())
            assert BaseJobsModel.database.connection.get("of the developer") == "precious"
    """)
    result = application.runpytest_subprocess("-v")
    result.assert_outcomes(passed=4)
    assert redis_client.keys() == ["of the developer"]


@pytest.mark.proof
def test_processes_of_xdist_have_a_server_each(application: pytest.Pytester) -> None:
    application.makepyfile("""
        import pytest
        from jobs import Mail
        from limpyd_jobs.testing import added_jobs, drain

        @pytest.mark.parametrize("number", range(6))
        def test_add(limpyd_jobs_database, number):
            for _ in range(5):
                Mail.add_job("1", to="ann")
            assert len(added_jobs(Mail)) == drain().total == 1
    """)
    application.runpytest_subprocess("-n", "2").assert_outcomes(passed=6)


@pytest.mark.proof
def test_jobs_run_at_once_and_the_time_is_moved_for_one_test(application: pytest.Pytester) -> None:
    application.makepyfile("""
        from datetime import timedelta

        import pytest
        from jobs import Mail
        from limpyd_jobs import STATUSES
        from limpyd_jobs.testing import clock, drain

        def test_at_once(jobs_at_once):
            assert Mail.add_job("1", to="ann").status.hget() == STATUSES.SUCCESS
            with pytest.raises(ValueError):
                Mail.add_job("2", to="bob")

        def test_clock(jobs_clock):
            assert Mail.add_job("1", to="ann", delayed_for=3600).status.hget() == STATUSES.DELAYED
            jobs_clock.move(hours=1)
            assert drain().success == 1

        def test_afterwards(limpyd_jobs_database):
            assert clock.moved == timedelta()
            assert Mail.add_job("1", to="ann").status.hget() == STATUSES.WAITING
    """)
    application.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=3)


@pytest.mark.proof
def test_runs_of_pytest_that_do_not_use_it_import_nothing_of_ours(application: pytest.Pytester) -> None:
    application.makepyfile("""
        import sys

        def test_modules():
            assert "limpyd_jobs_pytest" in sys.modules
            assert not {"limpyd_jobs", "limpyd", "redis"} & set(sys.modules)
    """)
    application.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.proof
def test_it_is_said_what_to_do_if_there_is_no_server_program(application: pytest.Pytester) -> None:
    application.makepyfile("""
        import pytest
        from limpyd_jobs.redis import embedded

        @pytest.fixture(scope="session", autouse=True)
        def no_programs():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PATH", "")
                patch.setattr(embedded, "PACKAGES", {})
                yield

        def test_add(limpyd_jobs_database):
            pass
    """)
    result = application.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*limpyd_jobs_database: No redis-server or valkey-server found: install one*"])
