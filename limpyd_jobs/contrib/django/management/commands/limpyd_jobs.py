"""``manage.py limpyd_jobs``."""

from __future__ import annotations

from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand

from limpyd_jobs.integration import run_program


class Command(BaseCommand):
    """All that ``limpyd-jobs`` does, in a process where Django is set up. The words are those of that program."""

    help = "Look at jobs, queues, errors and workers, and act on them: all of limpyd-jobs"

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the words over: Django's own options would get in their way."""
        run_program("jobs", ["limpyd-jobs", *argv[2:]])

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the same for ``call_command("limpyd_jobs", "check")``, which returns if all is well."""
        try:
            run_program("jobs", ["limpyd-jobs", *map(str, args)])
        except SystemExit as end:
            if end.code:
                raise

    def add_arguments(self, parser: Any) -> None:
        """Take any words."""
        parser.add_argument("args", nargs=REMAINDER)
