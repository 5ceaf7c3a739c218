"""What is said of an incident, as the commands and the screen of ``top`` show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.dates import span
from limpyd_jobs.query import Incident
from limpyd_jobs.texts import MESSAGE, one_line


class Said(NamedTuple):
    """An incident in words: each attribute is a line, empty if there is nothing to say.

    Attributes
    ----------
    title, text: str
        In some words, and in a sentence.
    age: str
        For how long it has lasted, ``+`` if it began before what was looked at.
    since: str
    facts: sequence of tuple of str
    message: str
        That of the error, behind its type.
    helps, note, command: str
        What helps, what else is known of that, and how to do it.
    style: str
        That of the colours of states.
    """

    title: str
    text: str
    age: str
    since: str
    facts: Sequence[tuple[str, str]]
    message: str
    helps: str
    note: str
    command: str
    style: str


def said_of(incident: Incident, now: datetime) -> Said:
    """Return an incident in words, at a time, naive UTC."""
    since, remedy = incident.since, incident.remedy
    age = span(max((now - since).total_seconds(), 0.0)) if since else ""
    return Said(
        title=incident.title,
        text=as_typed(one_line(incident.text, MESSAGE)),
        age=f"{age}+" if age and incident.is_older else age,
        since=f"{since:%Y-%m-%d %H:%M} (UTC), {age} ago" if since else "",
        facts=[(fact.name, fact.text) for fact in incident.facts],
        message=f"{incident.type}: {one_line(incident.message, MESSAGE)}" if incident.message else "",
        helps=remedy.label if remedy else "",
        note=remedy.note if remedy else "",
        command=as_typed(remedy.command) if remedy else "",
        style=incident.gravity,
    )
