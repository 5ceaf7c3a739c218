"""``manage.py limpyd_jobs``."""

from __future__ import annotations

import os
from argparse import REMAINDER
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand

from limpyd_jobs.integration import run_program


class Command(BaseCommand):
    """All that ``limpyd-jobs`` does, in a process where Django is set up. The words are those of that program."""

    help = "Look at jobs, queues, errors and workers, and act on them: all of limpyd-jobs"

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the words over: Django's own options would get in their way."""
        _run(argv[0], argv[2:])

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the same for ``call_command("limpyd_jobs", "check")``, which returns if all is well."""
        try:
            _run("manage.py", [*map(str, args)])
        except SystemExit as end:
            if end.code:
                raise

    def add_arguments(self, parser: Any) -> None:
        """Take any words."""
        parser.add_argument("args", nargs=REMAINDER)


def _run(program: str, words: Sequence[str]) -> None:
    name = os.path.basename(program)
    begin = "python -m django" if name == "__main__.py" else f"python {name}" if name.endswith(".py") else name
    typed = {"limpyd-jobs": f"{begin} limpyd_jobs", "limpyd-jobs-worker": f"{begin} limpyd_jobs_worker"}
    run_program("jobs", ["limpyd-jobs", *words], typed)
