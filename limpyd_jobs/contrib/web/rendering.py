"""Values as HTML, by templates, or as JSON. What is stored is hostile: everything is escaped, characters that are not
visible are shown as escapes, and texts are bounded, without a template doing anything for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from math import inf
from shlex import quote as quoted_for_shell
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from jinja2.runtime import Undefined
from markupsafe import Markup

from limpyd_jobs.contrib.web.guard import MAX_BODY, MAX_QUERY
from limpyd_jobs.contrib.web.pictures.lanes import short
from limpyd_jobs.contrib.web.protocol import Form
from limpyd_jobs.contrib.web.statics import static_names
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import parse_datetime
from limpyd_jobs.query import fails_now
from limpyd_jobs.views import count_of, document, rounded, shown_span, shown_state, sign_of

# How many characters of a text a page shows, and a program is sent, at most.
MAX_SHOWN, MAX_SENT = 20_000, 100_000

# A date as it is stored. What says that it is in UTC is not true of the viewer's time, which replaces it.
_DATE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(?: \(UTC\))?", re.ASCII)

# Until this year a job is delayed that waits for others, and what is shown of that.
ENDLESS, NO_DATE = 9999, "no date"

# How many characters of a text are shown in a cell of a list.
MAX_CELL = 200


def visible(text: object, most: int = MAX_SHOWN, lines: bool = False) -> str:
    """Return a text with escapes for all characters that are not visible, or that turn the direction of others.

    Of a text of more than `most` characters, the beginning is returned, and how many there are. With `lines`, ends of
    lines and tabs stay.
    """
    text = str(text)
    end = f"… ({len(text):,} characters)" if len(text) > most else ""
    text = text[:most]
    if text.isprintable():
        return text + end
    spared = "\n\t" if lines else ""
    return "".join(char if char.isprintable() or char in spared else _escape(char) for char in text) + end


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def as_html(value: Any) -> Any:
    """Return what a template prints for a value: Jinja calls this for each one, then escapes."""
    if value is None or isinstance(value, (Markup, Undefined)):
        return "" if value is None else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return visible(value)


def cell(value: Any) -> str:
    """Return a text as a cell of a list has it: short."""
    return "" if value is None else visible(value, MAX_CELL)


def shell(value: Any) -> str:
    """Return a word of a command line, as a shell takes it: a name is hostile there, too."""
    return quoted_for_shell(visible(value, MAX_CELL))


def lines(value: Any) -> Markup:
    """Return a text of several lines."""
    return Markup("{}").format(visible("" if value is None else value, lines=True))


def raw(value: Any) -> Markup:
    """Return a value as a form sends it back: escaped, but otherwise as it is, unless it is not UTF-8, or so long that
    no form with it is taken."""
    return Markup("{}").format("" if value is None else str(value)[:MAX_BODY].encode(errors="replace").decode())


def moment(value: Any) -> Markup | str:
    """Return a moment: as UTC, which the browser replaces by the viewer's time, with UTC on hover."""
    found = as_utc(value)
    if found is None:
        return "" if value is None else cell(value)
    if found.year == ENDLESS:
        return NO_DATE
    text = f"{found:%Y-%m-%d %H:%M:%S} UTC"
    stamp = f"{found:%Y-%m-%dT%H:%M:%S}Z"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(stamp, text, text)


def stamp(value: Any) -> str:
    """Return a moment as attributes have it, which the script reads."""
    found = as_utc(value)
    return f"{found:%Y-%m-%dT%H:%M:%S}Z" if found else ""


def clock(value: Any) -> Markup | str:
    """Return a moment as the time of day, which the browser replaces by that of the viewer."""
    found = as_utc(value)
    if found is None:
        return "" if value is None else cell(value)
    text = f"{found:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}" data-clock>{}</time>').format(stamp(found), text, f"{found:%H:%M}")


def percent(part: float) -> str:
    """Return a part of one: ``0.02 %``, ``4 %``, ``100 %``."""
    number = part * 100
    return "0" if not part else f"{number:.2g} %" if number < 10 else f"{number:.0f} %"


def ago(value: Any) -> Markup | str:
    """Return a moment as how long ago it is, or in how long it is; the script keeps that up to date."""
    found = as_utc(value)
    if found is None:
        return "" if value is None else cell(value)
    if found.year == ENDLESS:
        return NO_DATE
    text = f"{found:%Y-%m-%d %H:%M:%S} UTC"
    stamp = f"{found:%Y-%m-%dT%H:%M:%S}Z"
    shown = distance((datetime.now(timezone.utc) - found).total_seconds())
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(stamp, text, shown)


def distance(seconds: float) -> str:
    """Return how long ago something was, or in how long it is, in one unit: ``2 min ago``, ``in 7 min``."""
    number = abs(seconds)
    unit, size = next((unit, size) for unit, size, most in UNITS if number < size * most)
    text = f"{int(number // size):,} {unit}"
    return "now" if number < 1 else f"{text} ago" if seconds > 0 else f"in {text}"


# The units of distances in time, their seconds, and up to how many of them are shown: two of the next one, so that no
# smaller number stands below a larger one, as 1 min below 99 s.
UNITS = (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48), ("d", 86400, inf))


def told(value: Any) -> Markup:
    """Return a sentence of ours, with each stored date in it as a moment."""
    parts = _DATE.split(visible(value))
    return Markup("").join(moment(part) if _DATE.fullmatch(part) else part for part in parts)


def as_utc(value: Any) -> datetime | None:
    """Return a moment as a datetime in UTC: of a stored date, of seconds since the epoch, or of a datetime."""
    try:
        if isinstance(value, (int, float)):
            return datetime.fromtimestamp(value, timezone.utc)
        found = value if isinstance(value, datetime) else parse_datetime(value)
    except (OverflowError, ValueError, OSError, TypeError):
        return None
    return found and (found.astimezone(timezone.utc) if found.tzinfo else found.replace(tzinfo=timezone.utc))


def number(value: Any) -> str:
    """Return a number with separators; another value as a cell."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else cell(value)


def in_words(numbers: Mapping[str, int], names: Iterable[str]) -> str:
    """Return some of several numbers with their names: ``2 running, 1 waiting``."""
    return ", ".join(f"{numbers[name]:,} {name}" for name in names if numbers.get(name))


def mark(value: Any) -> str:
    """Return a text as the id of an element has it, so that a swap moves the row of a thing, and the focus with it."""
    return sha256(f"{value}".encode(errors="surrogatepass")).hexdigest()[:12]


def plain(value: Any) -> str:
    """Return a number as attributes have it: without separators."""
    return f"{value}"


def address(path: str, pairs: Iterable[tuple[str, Any]] = (), **query: Any) -> str:
    """Return an address of the dashboard, without where it is mounted. `path` may have any text in it. Empty values are
    left out."""
    given = [(name, value) for name, value in (*pairs, *query.items()) if value not in (None, "")]
    behind = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in given)
    return f"{_quoted(path, '/:')}{'?' if behind else ''}{behind}"


def _quoted(text: object, safe: str = "") -> str:
    return quote(f"{text}"[:MAX_QUERY], safe=safe, errors="surrogateescape")  # no longer address is answered


def pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return values as a form sends them, so that a browser sends them back unchanged."""
    return Form([(name, "" if value is None else str(value)) for name, value in values.items()]).as_kept()


@cache
def _templates() -> Environment:
    """The templates, which all dashboards of a process have in common: each is compiled once."""
    templates = Environment(
        loader=PackageLoader("limpyd_jobs.contrib.web"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        finalize=as_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(FILTERS)
    templates.globals.update(Role=Role, infinity=inf)
    return templates


def render(template: str, root: str, **context: Any) -> str:
    """Return the HTML of a template. In it, ``url("/jobs", status="error")`` is an address of the dashboard, and
    ``static("app.css")`` that of a file."""

    def url(path: str, pairs: Sequence[tuple[str, Any]] = (), **query: Any) -> str:
        return root + address(path, pairs, **query)

    def static(name: str) -> str:
        return f"{root}/static/{static_names()[name]}"

    return _templates().get_template(template).render(url=url, static=static, root=root, **context)


def script_json(value: Any) -> str:
    """Return a value as JSON, for an attribute of an element, which a script of ours reads."""
    return json.dumps(document(value, MAX_SENT), separators=(",", ":"))


def as_json(value: Any) -> bytes:
    """Return a value as JSON for a program."""
    return json.dumps(document(value, MAX_SENT), indent=1).encode() + b"\n"


# How many seconds the units of an interval have.
INTERVALS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def times_of(trigger: Any) -> str:
    """Say when a schedule is due, by the description of its trigger: ``every 10 min``, ``30 7 * * mon``, else JSON."""
    if isinstance(trigger, str):
        return trigger
    kind, given = next(iter(trigger.items())) if isinstance(trigger, Mapping) and len(trigger) == 1 else ("", None)
    if kind == "interval" and isinstance(given, Mapping) and not given.keys() - {*INTERVALS, "start_date"}:
        parts = [(given[name], size) for name, size in INTERVALS.items() if name in given]
        if parts and all(type(part) in (int, float) and 0 < part < 1e9 for part, _ in parts):
            return f"every {shown_span(sum(part * size for part, size in parts))}"
    if isinstance(given, str) and kind in ("cron", "date"):
        return given if kind == "cron" else f"once, at {given}"
    return json.dumps(trigger, ensure_ascii=False)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "bound": short,
    "cell": cell,
    "clock": clock,
    "in_words": in_words,
    "json": script_json,
    "lines": lines,
    "mark": mark,
    "moment": moment,
    "number": number,
    "pairs": pairs,
    "percent": percent,
    "plain": plain,
    "plural": count_of,
    "plural_of": lambda values, one, many: count_of(len(values), one, many),
    "raw": raw,
    "fails_now": lambda date: fails_now(date, datetime.now(timezone.utc).replace(tzinfo=None)),
    "rounded": rounded,
    "seconds": shown_span,
    "shell": shell,
    "sign_of_flow": sign_of,
    "stamp": stamp,
    "times_of": times_of,
    "told": told,
    "word_of_flow": shown_state,
}
