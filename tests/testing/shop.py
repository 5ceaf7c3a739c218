"""The jobs of an application whose tests use `limpyd_jobs.testing`."""

from __future__ import annotations

import json
from typing import Any

from limpyd import fields

from limpyd_jobs import Argument, Cancel, Job, Queue, Requeue, Retry


class Mail(Job):
    namespace = "shop_of_testing"
    queue_name = "mails"
    default_retry_policy = Retry(times=1, delay=[600], only_on=OSError)

    to = Argument()
    options = Argument(json, default={})
    note = fields.InstanceHashField()
    tags = fields.SetField()

    def run(self, queue: Queue) -> str:
        to = self.arguments.to
        if to == "bob":
            raise ValueError("bob is not an address")
        if to == "unreachable":
            raise OSError("no mail server")
        if to == "cancel":
            raise Cancel("nobody wants it")
        if to == "later":
            raise Requeue(delayed_for=60)
        return f"sent to {to}"


class Chain(Job):
    """Adds the next one, until there are `left` no more."""

    namespace = "shop_of_testing"
    left = Argument(int)

    def run(self, queue: Queue) -> None:
        if self.arguments.left:
            Chain.add_job(f"{self.pk.get()}", queue.name.hget(), left=self.arguments.left - 1)


class Nightly(Job):
    namespace = "shop_of_testing"
    queue_name = "nightly"

    def run(self, queue: Queue) -> Any:
        pass
