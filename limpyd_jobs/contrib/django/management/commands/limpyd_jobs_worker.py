"""``manage.py limpyd_jobs_worker``."""

from __future__ import annotations

import sys
from argparse import REMAINDER
from collections.abc import Sequence
from typing import Any

from django.conf import settings as of_django
from django.core.management.base import BaseCommand

from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.around import close_connections
from limpyd_jobs.contrib.django.reloading import is_child, run_reloading, watch_code
from limpyd_jobs.integration import run_program

PROG = "manage.py limpyd_jobs_worker"


class Command(BaseCommand):
    """Runs a worker as ``limpyd-jobs-worker`` does, with its options, in a process where Django is set up. Without
    ``--queues`` it serves those of ``LIMPYD_JOBS["QUEUES"]``.

    With ``--reload``, which is on if ``DEBUG`` is, unless ``--no-reload`` is given, it begins anew when code has
    changed. The running job is finished before.
    """

    help = "Run a worker: the options are those of limpyd-jobs-worker, and --reload, --no-reload"

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the words over: Django's own options would get in their way."""
        self.handle(*argv[2:])

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a worker, or what starts it again and again."""
        words, reloads = split_words(list(map(str, args)))
        if reloads and not is_child():
            sys.exit(run_reloading())
        close_connections()  # of checks and of `ready`
        with watch_code(reloads):
            run_program("worker", [PROG, *words])

    def add_arguments(self, parser: Any) -> None:
        """Take any words."""
        parser.add_argument("args", nargs=REMAINDER)


def split_words(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words for the worker, and whether it begins anew when code has changed."""
    reloads = of_django.DEBUG
    for word in words:
        reloads = {"--reload": True, "--no-reload": False}.get(word, reloads)
    rest = [word for word in words if word not in ("--reload", "--no-reload")]
    is_about = {word.partition("=")[0] for word in rest}
    if {"-h", "--help", "--version", "--dry-run"} & is_about:
        reloads = False
    queues = settings.queue_names()
    if queues and "--queues" not in is_about:
        rest.append(f"--queues={','.join(queues)}")
    return rest, reloads
