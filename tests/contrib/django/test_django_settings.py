"""The setting LIMPYD_JOBS, its checks, and the jobs that are found."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from limpyd_jobs import Job


def found_by_check(**settings: Any) -> list[str]:
    with override_settings(**settings):
        return [f"{each.id}: {each.msg}" for each in run_checks() if (each.id or "").startswith("limpyd_jobs.")]


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://user:secret@127.0.0.1:6379/1",
        "redis://127.0.0.1:6379?db=1",
        "rediss://redis.example.com:6380/0?ssl_cert_reqs=none",
        "unix:///run/redis.sock?db=2&password=secret",
        {"host": "localhost", "port": 6379, "db": 1},
    ],
)
def test_a_database_is_named_as_redis_py_and_caches_of_django_do(url: Any) -> None:
    assert found_by_check(LIMPYD_JOBS={"DATABASE": url, "QUEUES": ["mails"]}) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "limpyd_jobs.E001: LIMPYD_JOBS must be a dictionary, not []"),
        ({"DATABSE": ""}, "limpyd_jobs.E001: LIMPYD_JOBS has no setting 'DATABSE', but DATABASE, QUEUES, MODULES"),
        ({"DATABASE": 6379}, "limpyd_jobs.E002: LIMPYD_JOBS['DATABASE'] must be a URL"),
        ({"DATABASE": "http://:hunter2@here"}, "limpyd_jobs.E002: LIMPYD_JOBS['DATABASE']: 'http://***@here' is not"),
        ({"QUEUES": "mails"}, "limpyd_jobs.E003: LIMPYD_JOBS['QUEUES'] must be a list of names, not 'mails'"),
        ({"QUEUES": ["a,b"]}, "limpyd_jobs.E003: LIMPYD_JOBS['QUEUES']: The name of a queue must"),
        ({"MODULES": ["a b"]}, "limpyd_jobs.E004: LIMPYD_JOBS['MODULES']: 'a b' cannot be the name of a module"),
    ],
)
def test_what_is_wrong_is_told_by_a_check_and_refused_when_django_is_set_up(given: Any, expected: str) -> None:
    (text,) = found_by_check(LIMPYD_JOBS=given, DEBUG=True)
    assert text.startswith(expected)
    with override_settings(LIMPYD_JOBS=given), pytest.raises(ImproperlyConfigured, match=r"limpyd_jobs\.E00"):
        apps.get_app_config("limpyd_jobs").ready()


def test_a_project_that_names_no_database_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.partition(":")[0] for each in found_by_check(LIMPYD_JOBS={})] == ["limpyd_jobs.W001"]
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", "localhost")
    assert found_by_check(LIMPYD_JOBS={}) == []


def test_the_models_move_to_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[dict[str, Any]] = []
    monkeypatch.setattr(type(Job.database), "reset", lambda self, **settings: moved.append(settings))
    with override_settings(LIMPYD_JOBS={"DATABASE": "redis://elsewhere/3"}):
        apps.get_app_config("limpyd_jobs").ready()
    assert {"url": "redis://elsewhere/3"} in moved


def test_jobs_of_applications_are_imported() -> None:
    assert "bookshop.jobs" in sys.modules


def test_modules_of_jobs_may_be_named() -> None:
    with override_settings(LIMPYD_JOBS={"MODULES": ["bookshop.gone"]}), pytest.raises(ImportError, match="bookshop"):
        apps.get_app_config("limpyd_jobs").ready()
