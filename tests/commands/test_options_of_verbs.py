"""No verb, and no command, ignores an option: what it does not support it refuses, before anything is done."""

from __future__ import annotations

import pytest
from cases import each
from reading import limpyd_jobs

from limpyd_jobs.commands.shared.verbs import VerbCommand
from limpyd_jobs.scripts.jobs import COMMANDS


@pytest.mark.usefixtures("redis_client")
@each(
    ("command", "told"),
    {
        "jobs delete --all --limit=1": "delete does not support --limit",
        "jobs cancel --all --oldest-first --yes": "cancel does not support --oldest-first",
        "jobs export --all --timeout=1": "export does not support --timeout",
        "jobs list --queue=mails": "list does not support --queue",
        "jobs list --by=class": "list does not support --by",
        "jobs --force": "list does not support --force",
        "jobs count --limit=3": "count supports --limit with --by only",
        "jobs show x:1 --dry-run": "show does not support --dry-run",
        "jobs list --json --jsonl": "--json and --jsonl do not go together",
        "errors delete --all --limit=1": "delete does not support --limit",
        "errors groups --full": "groups does not support --full",
        "queues delete a --force": "delete does not support --force",
        "quarantine list --all": "list does not support --all",
        "schedules list --queue=a": "list does not support --queue",
        "schedules pause a --paused": "pause does not support --paused",
        "workers list --all": "list does not support --all",
        "pause orders --reason=x": "no such option: --reason\n",
        "pause --list --force": "--list takes no names, and does not support --force",
        "info --every=1": "--every needs --watch",
        "check --unaudited": "--unaudited needs --repair",
    }.items(),
)
def test_an_option_that_would_be_ignored_is_refused(command: str, told: str) -> None:
    name, *words = command.split()
    status, out, error = limpyd_jobs(name, *words)
    assert (status, out) == (2, "")
    assert told in error


def test_options_are_for_verbs_that_exist() -> None:
    commands = [kind(name, []) for name, kind in COMMANDS.items() if issubclass(kind, VerbCommand)]
    found = [(each, option) for each in commands for option in each.option_list if getattr(option, "verbs", None)]
    assert len(found) > 40
    for command, option in found:
        assert set(option.verbs) <= set(command.verbs()), option
