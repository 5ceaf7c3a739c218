"""Jobs of an application, for processes of their own."""

from __future__ import annotations

from typing import Any

from limpyd_jobs import Job


class Order(Job):
    """Does nothing."""

    namespace = "myapp"
    queue_name = "orders"

    def run(self, queue: Any) -> None: ...
