"""Names of jobs and queues in Redis."""

from __future__ import annotations

import pytest

from limpyd_jobs.idents import Ident, QueueKey


def test_an_ident_is_the_path_of_a_class_and_a_pk() -> None:
    assert Ident.of("myapp.jobs.MyJob:12") == Ident.parse("myapp.jobs.MyJob:12") == ("myapp.jobs.MyJob", "12")


@pytest.mark.parametrize("text", ["", "garbage", "MyJob:12", "myapp.MyJob:", "myapp.My:Job:12", "myapp.:12", ":12"])
def test_what_is_no_ident_is_told(text: str) -> None:
    assert Ident.parse(text) is None


def test_a_queue_key_is_the_model_and_a_pk() -> None:
    key = QueueKey.of_list("limpyd_jobs:queue:7:waiting")
    assert (key, key.pk, key.waiting) == ("limpyd_jobs:queue:7", "7", "limpyd_jobs:queue:7:waiting")
