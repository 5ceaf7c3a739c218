"""One job: all that is stored of it, why it does not run, and what can be done with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from limpyd.exceptions import UniquenessError

from limpyd_jobs import NotEditable
from limpyd_jobs.contrib.web.masking import HIDDEN, Mask
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import MAX_SHOWN, address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import Ident, one_line, parse_datetime, parse_moment, time_span
from limpyd_jobs.query import (
    FieldBeside,
    FieldChange,
    JobDetails,
    Reason,
    duplicate_job,
    edit_job,
    explain_job,
    job_details,
)
from limpyd_jobs.views import (
    Block,
    PlaceInFlow,
    Timeline,
    blocks_of,
    last_chunks,
    place_in_flow,
    timeline_of,
    verbs_for,
)

_LINES = re.compile(r"[\n\t]")

# How many chunks of output are shown, the last ones.
MAX_CHUNKS = 40

# With what a line of a log begins.
_MOMENT = re.compile(r"\S+ \S+ ", re.ASCII)

# How many other fields are shown, and can be edited, at most.
MAX_FIELDS = 200

# How many bytes of a value are read.
MAX_READ = 500_000

# How many errors are shown with their tracebacks.
MAX_ERRORS = 5

# The end of what stands instead of another value.
NOT_READ = "too long to be read here)"

# The fields that are shown above the others, and so not once more.
ABOVE = ("status", "queued", "identifier", "priority", "added", "start", "end", "tries", "delayed_until")


@dataclass(frozen=True)
class JobShown:
    """A job, as it was when it was read, with masked secrets; and why it does not run yet, or did not.

    Of its fields, the first ones are there; `fields_stored` says how many there are. `place` is where it stands in its
    flow, if it is in one. `output` is the end of what it emitted.
    """

    job: JobDetails
    job_class: str
    reasons: Sequence[Reason]
    fields_stored: int
    place: PlaceInFlow | None = None
    output: str = ""

    @property
    def state(self) -> str:
        """Its status, or what it waits for."""
        return self.job.waits_for or ("waiting for its limits" if self._is_parked else self.job.status)

    @property
    def _is_parked(self) -> bool:
        return any(each.code == "parked" or each.code.startswith(("limit_", "parked_")) for each in self.reasons)

    @property
    def arguments(self) -> Mapping[str, str]:
        """The fields that are not in the summary."""
        return {name: value for name, value in self.job.fields.items() if name not in ABOVE}

    @property
    def editable(self) -> Mapping[str, str]:
        """The fields that a form can change: those that are read, are not masked, and have a text that a browser sends
        back."""
        return {
            name: value
            for name, value in self.arguments.items()
            if HIDDEN not in value
            and not value.endswith(NOT_READ)
            and len(value) <= MAX_SHOWN
            and _LINES.sub("", value).isprintable()
        }

    @property
    def name(self) -> str:
        """Its class without the module, and its pk."""
        return f"{self.job_class.rpartition('.')[2]}:{self.job.ident.rpartition(':')[2]}"

    @property
    def timeline(self) -> Timeline | None:
        """What it did, to scale."""
        return timeline_of(self.job)

    @property
    def shown_errors(self) -> Sequence[tuple[Mapping[str, str], Sequence[Block]]]:
        """Its last errors, the newest first, each with its traceback in blocks."""
        return [(each, blocks_of(each.get("traceback", ""), self.job_class)) for each in self.job.errors[:MAX_ERRORS]]

    @property
    def sub(self) -> str:
        """What a sentence says of it beside its status."""
        if self.job.status == "error":
            return "It is not tried again by itself."
        return ""

    @property
    def log_lines(self) -> Sequence[tuple[str, str]]:
        """The lines of its log: the moment of each, and the text."""
        parts = [(_MOMENT.match(line), line) for line in self.job.log]
        return [(found[0].strip() if found else "", line[found.end() :] if found else line) for found, line in parts]

    @property
    def verbs(self) -> Sequence[str]:
        """The verbs that can work now."""
        return verbs_for(self.job.status, is_claimed=bool(self.job.owner), waits=bool(self.job.waits_for))

    @property
    def is_over(self) -> bool:
        return self.job.status in ("success", "error", "canceled")


def show(asked: Asked) -> JobShown:
    ident = asked.path["ident"]
    path = Ident.of(ident).path
    mask = asked.masking.of(path)
    details = job_details(ident, asked.database, most=MAX_READ)
    others = islice((name for name in details.fields if name not in ABOVE), MAX_FIELDS)
    fields = {name: details.fields[name] for name in (*ABOVE, *others) if name in details.fields}
    masked = details._replace(
        fields=mask.fields(fields),
        progress=details.progress and details.progress._replace(text=mask.field("progress", details.progress.text)),
        log=[_masked_line(line, mask) for line in details.log],
        result=None if details.result is None else mask.field("result", details.result),
        errors=[mask.error(error) for error in details.errors],
        beside={name: _masked(name, field, mask) for name, field in details.beside.items()},
        cursor=mask.field("cursor", details.cursor),
        cancel_reason=mask.field("cancel_reason", details.cancel_reason),
    )
    reasons = explain_job(ident, asked.database, mask=partial(_masked_text, mask)).reasons
    place = place_in_flow(ident, asked.database)
    return JobShown(masked, path, reasons, len(details.fields), place, _output(asked, details, mask))


def _output(asked: Asked, details: JobDetails, mask: Mask) -> str:
    """Return the end of what a job emitted: texts as they are, other values as JSON, each in a line."""
    chunks = last_chunks(details.ident, MAX_CHUNKS, asked.database) if details.output else []
    values = [HIDDEN if mask.is_secret("output") else mask.value(each.value) for each in chunks]
    if all(isinstance(each, str) for each in values):
        return "".join(values)[-MAX_SHOWN:]
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in values)[-MAX_SHOWN:]


def _masked_text(mask: Mask, name: str, text: str) -> str:
    return _masked_line(text, mask) if name == "log" else mask.field(name, text)


def _masked_line(line: str, mask: Mask) -> str:
    """Return a line of a log, which begins with its moment, without secrets."""
    moment = _MOMENT.match(line)
    end = moment.end() if moment else 0
    return line[:end] + mask.field("log", line[end:])


def _masked(name: str, field: FieldBeside, mask: Mask) -> FieldBeside:
    """Return a field that is not in the hash without secrets. Members of a set may be JSON, as keys of the others."""
    if mask.is_secret(name):
        return field._replace(values=[HIDDEN])
    values = mask.value(field.values)
    if isinstance(values, dict):
        values = {mask.text(key): value for key, value in values.items()}
    return field._replace(values=values)


def edit(asked: Asked, form: Form) -> Plan:
    """Change the priority, the delay and the fields of a job that waits or is delayed, if no worker claims it first."""
    ident = form.one("ident")
    path = Ident.of(ident).path
    edited = [each for each in _fields_of(form) if each[1] != each[2]]
    fields = {name: new for name, _, new in edited}
    shown = {name: old for name, old, _ in edited if old is not None}
    if any(asked.masking.of(path).is_secret(name) for name in fields):
        raise Refusal(403, "A field that is masked cannot be edited here")
    if form.get("now") and (form.get("for") or form.get("until")):
        raise Refusal(400, "Let the job wait no more, or delay it, not both")
    given: dict[str, Any] = {
        "fields": fields,
        "priority": form.get("priority_to") or None,
        "delayed_for": 0 if form.get("now") else form.read("for", time_span),
        "delayed_until": form.read("until", partial(parse_moment, "until")),
        "as_text": True,
        "database": asked.database,
    }
    with _refused():
        found = edit_job(ident, **given, seen=shown, dry_run=True)
    seen = {each.name: each.before for each in found} | shown
    what = _shown(found, asked, path) or "nothing: it has these values already"

    def do(_: OnStep) -> str:
        with _refused():
            changed = edit_job(ident, **given, seen=seen) if found else []
        return f"changed: {_shown(changed, asked, path)}" if changed else "nothing to change"

    return Plan(f"Edit {ident}", do, lambda: what, back=address(f"/jobs/{ident}"), is_short=True)


def duplicate(asked: Asked, form: Form) -> Plan:
    """Add a job with the arguments of another one, or with changes."""
    ident = form.one("ident")
    path = Ident.of(ident).path
    fields = {name: new for name, old, new in _fields_of(form) if old != new}
    if any(asked.masking.of(path).is_secret(name) for name in fields):
        raise Refusal(403, "A field that is masked cannot be changed here")
    given: dict[str, Any] = {
        "fields": fields,
        "identifier": form.get("identifier_to") or None,
        "queue_name": form.get("queue_to") or None,
        "priority": form.get("priority_to") or None,
        "delayed_for": form.read("for", time_span),
        "delayed_until": form.read("until", partial(parse_moment, "until")),
        "as_text": True,
        "database": asked.database,
    }
    with _refused():
        duplicate_job(ident, **given, dry_run=True)

    def do(_: OnStep) -> str:
        with _refused():
            return f"added: {duplicate_job(ident, **given)}"

    return Plan(f"Run {ident} again, as a new job", do, back=address(f"/jobs/{ident}"), is_short=True)


def _fields_of(form: Form) -> Iterator[tuple[str, str | None, str]]:
    """Yield the name, the shown and the new value of each field that a form has. The shown one is None if a program
    left it out. Browsers send ends of lines as CRLF."""
    values = dict(form.pairs)
    for name, value in form.pairs:
        if name.startswith("field.") and f"seen.{name[6:]}" in values:
            yield name[6:], values[f"seen.{name[6:]}"].replace("\r\n", "\n"), value.replace("\r\n", "\n")
        elif name.startswith("field."):
            yield name[6:], None, value


def _shown(changes: Sequence[FieldChange], asked: Asked, path: str) -> str:
    """Say what changes, without secrets."""

    def shown(name: str, text: str | None) -> str:
        if text and name == "delayed_until" and (date := parse_datetime(text)):
            return f"{date:%Y-%m-%d %H:%M:%S} UTC"
        return "(none)" if text is None else one_line(asked.masking.of(path).text(text), 60)

    return ", ".join(
        f"{each.name} from {shown(each.name, each.before)} to {shown(each.name, each.after)}" for each in changes
    )


@contextmanager
def _refused() -> Iterator[None]:
    """Refuse what `edit_job` refuses."""
    try:
        yield
    except ImportError as error:
        told = f"The class of the job cannot be imported: {one_line(error, 500)}. Start the dashboard with --pythonpath"
        raise Refusal(409, told) from None
    except NotEditable as error:
        raise Refusal(409, str(error)) from None
    except (AttributeError, TypeError, ValueError, UniquenessError) as error:
        raise Refusal(400, one_line(error, 2_000)) from None


PAGE = Page(
    "/jobs/{ident:path}",
    "Job",
    show,
    "job.html",
    acts=(Act("/jobs/edit", Role.ACT, edit), Act("/jobs/duplicate", Role.ACT, duplicate)),
    lane="records",
)
