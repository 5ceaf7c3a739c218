"""``manage.py limpyd_jobs_outbox``."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.outbox.entries import entries_of, try_again
from limpyd_jobs.contrib.django.outbox.relaying import relay_due
from limpyd_jobs.integration import described, one_line

MAX_NUMBER = 2**63 - 1  # that databases take


def _number_from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) < 20 and least <= int(text) <= MAX_NUMBER):
            raise ArgumentTypeError(f"not a number from {least} on: {text[:100]!r}")
        return int(text)

    return number


class Command(BaseCommand):
    """Looks at the outbox, and acts on it."""

    help = "The outbox of jobs: relay what is due, list it, retry or discard what is set aside"

    def add_arguments(self, parser: Any) -> None:
        """Add a verb, and what it needs."""
        databases = settings.outbox_databases()
        database = {"default": databases[0], "choices": databases, "help": "The alias of the database of the outbox"}
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        made = {
            "relay": verbs.add_parser("relay", help="Add the jobs of the entries that are due, and end"),
            "list": verbs.add_parser("list", help="Show the entries"),
            "retry": verbs.add_parser("retry", help="Let entries that are set aside be relayed again"),
            "discard": verbs.add_parser("discard", help="Delete entries that are set aside, with their jobs"),
        }
        for each in made.values():
            each.add_argument("--database", **database)
        made["list"].add_argument("--set-aside", action="store_true", help="Only those that are set aside")
        made["list"].add_argument("--limit", type=_number_from(0), default=100, help="How many of them; 100 by default")
        help_of_retry = "Which; without any, all that are set aside"
        made["retry"].add_argument("id", nargs="*", type=_number_from(1), help=help_of_retry)
        made["discard"].add_argument("id", nargs="+", type=_number_from(1), help="Which")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the verb says."""
        entries = entries_of(options["database"])
        try:
            self.stdout.write(getattr(self, f"_{options['verb']}")(entries, options))
        except Error as error:
            raise CommandError(f"The database {options['database']} cannot be used: {described(error)}") from error

    def _relay(self, entries: Any, options: dict[str, Any]) -> str:
        found, _ = relay_due(options["database"], math.inf)
        failed = [f"{each.entry.pk} {one_line(each.entry)}: {each.error}" for each in found if each.error]
        lines = [f"{len(found) - len(failed)} jobs added", *(f"not added: {each}" for each in failed)]
        if failed:
            raise CommandError("\n".join(lines))
        return lines[0]

    def _list(self, entries: Any, options: dict[str, Any]) -> str:
        chosen = entries.filter(due__isnull=True) if options["set_aside"] else entries
        number, lines = chosen.count(), []
        for each in chosen.defer("token", "arguments", "created")[: options["limit"]]:
            state = "set aside" if each.is_set_aside else f"due {each.due:%Y-%m-%d %H:%M:%S}"
            why = f", {each.tries} tries: {each.error}" if each.tries else ""
            lines.append(f"{each.pk} {one_line(each)} ({state}{why})")
        return "\n".join([*lines, f"{number} entries"])

    def _retry(self, entries: Any, options: dict[str, Any]) -> str:
        return f"{try_again(entries, options['id'])} entries will be relayed again"

    def _discard(self, entries: Any, options: dict[str, Any]) -> str:
        number, _ = entries.filter(due__isnull=True, pk__in=options["id"]).delete()
        return f"{number} entries deleted"
