"""Finding anything by a text: at once, and then by a look through all jobs, some at a time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import FoundJob
from limpyd_jobs.views import Finding, Place, VerbFound, find_anything, find_verbs, look_through

HERE = "/find"

MAX_ASKED = 2_000

# The symbol of each kind of place, and what it is called.
KINDS = {
    "status": ("jobs", "Jobs that are"),
    "queue": ("queues", "Queue"),
    "class": ("jobs", "Class"),
    "cause": ("err", "Cause"),
    "flow": ("flows", "Flow"),
    "schedule": ("schedules", "Schedule"),
    "audit": ("audit", "Audit"),
}


@dataclass(frozen=True)
class Option:
    """Something to go to.

    Attributes
    ----------
    icon: str
        The name of a symbol, or the status of a job.
    title, detail: str
    note: str
        At the right: a status, or a number.
    moment: str
        When that was; empty if it is not known.
    address: str
    """

    icon: str
    title: str
    detail: str
    note: str
    moment: str
    address: str
    form: Mapping[str, str] = field(default_factory=dict)  # what is sent there, of a verb


@dataclass(frozen=True)
class Group:
    """Options of a kind."""

    title: str
    options: Sequence[Option]


@dataclass(frozen=True)
class FindShown:
    """What a text finds. `scans` says whether a look through fields that are not indexed may find more."""

    text: str
    groups: Sequence[Group]
    scans: bool


@dataclass(frozen=True)
class ThroughShown:
    """A part of such a look: what it found, how far it is, and where it goes on."""

    options: Sequence[Option]
    looked: int
    size: int
    following: str | None


def show(asked: Asked) -> FindShown:
    text = asked.query.get("q")[:MAX_ASKED]
    verbs = find_verbs(text, asked.database) if asked.may(Role.ACT) else None
    if verbs:
        return FindShown(text, [Group("Do", [*map(_of_verb, verbs)])], False)
    found = find_anything(text, asked.database, asked.masking.hides)
    return FindShown(found.text, [*_groups(asked, found)], found.scans)


def _of_verb(found: VerbFound) -> Option:
    """Return what asks before it does something."""
    if found.verb != "requeue":
        word, icon = ("Pause", "pause") if found.verb == "pause" else ("Unpause", "play")
        form = {"queue": found.name, "ask": "1", "from": "queue"}
        return Option(icon, f"{word} {found.name}…", "", "it asks first", "", f"/queues/{found.verb}", form)
    if found.kind == "cause":
        title, path, form = f"Requeue the jobs of {found.about}…", "/errors/requeue", {"fingerprint": found.name}
    else:
        title, path = f"Requeue the jobs in error of {found.name}…", "/jobs/requeue"
        form = {"q": shlex.join(["status=error", f"queue={found.name}"]), "all": "1"}
    return Option("again", title, "", "it asks first", "", path, form)


def _groups(asked: Asked, found: Finding) -> list[Group]:
    groups = [
        Group(
            f"Jobs with {each.word}" if each.word != found.jobs[0].word or len(found.jobs) > 1 else "Jobs",
            [
                *(_of_job(asked, job) for job in each.jobs),
                *_all_of(each.word, each.number.number, "" if each.number.is_exact else "at least "),
            ],
        )
        for each in found.jobs
    ]
    return [*groups, *([Group("Elsewhere", [*map(_of_place, found.places)])] if found.places else [])]


def _all_of(word: str, number: int, least: str) -> list[Option]:
    if number < 2:
        return []
    return [Option("jobs", f"All {least}{number:,} jobs", "", "as a list", "", address("/jobs", q=word))]


def _of_job(asked: Asked, job: FoundJob, field: str = "") -> Option:
    path, _, pk = job.ident.rpartition(":")
    identifier = asked.masking.identifier(job.identifier, job.ident) or ""
    moment = job.end or job.start or job.added or ""
    detail = f"{identifier}{f', in {field}' if field else ''}"
    return Option(
        job.status, f"{path.rpartition('.')[2]}:{pk}", detail, job.status, moment, address(f"/jobs/{job.ident}")
    )


def _of_place(place: Place) -> Option:
    icon, what = KINDS[place.kind]
    title = place.about if place.kind in ("cause", "flow") else place.name
    about = place.about if place.kind == "audit" else ""
    return Option(icon, f"{what} {title}", about, "", "", _address_of(place))


def _address_of(place: Place) -> str:
    if place.kind == "cause":
        return address("/errors/cause", fingerprint=place.name)
    if place.kind in ("queue", "class"):
        return address(f"/queues/{place.kind}", name=place.name)
    if place.kind == "flow":
        return address("/flows/flow", name=place.name)
    if place.kind == "schedule":
        return address("/schedules/schedule", name=place.name)
    return (
        address("/audit", q=place.name) if place.kind == "audit" else address("/jobs", q=f"{place.kind}={place.name}")
    )


def show_through(asked: Asked) -> ThroughShown:
    text, after = asked.query.one("q")[:MAX_ASKED], asked.query.get("after") or None
    found = look_through(text, after, database=asked.database, is_hidden=asked.masking.hides)
    options = [_of_job(asked, job, field) for job, field in zip(found.jobs, found.fields, strict=True)]
    return ThroughShown(options, found.looked, found.size, found.following)


PAGE = Page(HERE, "Find anything", show, "find.html", lane="jobs")
THROUGH_PAGE = Page(f"{HERE}/through", "Look through", show_through, "through.html", lane="jobs")
