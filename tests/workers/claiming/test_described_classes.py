"""What scripts are told of the classes is kept until they change; two threads of a worker ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from limpyd_jobs import Queue
from limpyd_jobs.models import job_classes
from limpyd_jobs.workers.claiming import claimer as module
from limpyd_jobs.workers.claiming.claimer import Claimer


@pytest.mark.usefixtures("redis_client")
def test_no_thread_gets_new_classes_with_the_text_of_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    claimer = Claimer(Queue, 60)
    claimer.request()
    before, seen = claimer.classes, []
    describe = module.classes_argument

    def described(classes: Any) -> str:
        seen.append(claimer.classes)  # as the other thread sees it just then
        return describe(classes)

    monkeypatch.setattr(module, "classes_argument", described)
    job_classes.look_again()
    request = claimer.request()
    assert [each is before for each in seen] == [True]
    assert request.classes is claimer.classes is job_classes.known
    assert claimer.request().words()[3] == describe(job_classes.known)
    assert len(seen) == 1
