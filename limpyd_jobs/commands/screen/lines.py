"""Lines of text with styles, as wide as the screen, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from limpyd_jobs.texts import MESSAGE, one_line

# A part of a line: its text, and its style.
Part = tuple[str, str]
Line = list[Part]

# The styles, as rich calls them. Each state has a sign, too, because colours are not seen by all, nor everywhere.
STYLES = {
    "": "",
    "title": "bold",
    "heading": "dim",
    "weak": "dim",
    "key": "bold cyan",
    "error": "bold red",
    "warning": "yellow",
    "over": "dim",
    "well": "cyan",
    "running": "blue",
    "delayed": "magenta",
    "ask": "bold yellow",
    "link": "cyan",
    "verdict": "bold cyan",
    "verdict error": "bold red",
    "verdict warning": "bold yellow",
}

SIGNS = {
    "error": ("✕", "x"),
    "warning": ("!", "!"),
    "paused": ("‖", "|"),
    "silent": ("≈", "~"),
    "over": ("○", "o"),
    "well": ("✓", "."),
    "running": ("▶", ">"),
    "gone": ("·", "."),
    "full": ("█", "#"),
    "empty": ("░", "-"),
    "slot": ("▪", "#"),
    "free": ("▫", "-"),
    "selected": ("▌", ">"),
    "more": ("…", "."),
}


class Signs:
    """The signs that a terminal can show, by their names."""

    def __init__(self, encoding: str) -> None:
        self._at = 0 if encoding.lower().replace("-", "").startswith("utf8") else 1

    def __getitem__(self, name: str) -> str:
        return SIGNS[name][self._at]

    def bar(self, part: float, width: int) -> str:
        """Return a bar that is filled as far as a part of 1."""
        filled = min(max(round(part * width), 0), width)
        return self["full"] * filled + self["empty"] * (width - filled)

    def slots(self, taken: int, number: int, most: int = 8) -> str:
        """Return a sign for each slot; beyond some, how many there are."""
        taken = min(taken, number)
        if number <= most:
            return self["slot"] * taken + self["free"] * (number - taken)
        return f"{taken:,} of {number:,}"


class Column(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    name: str
    importance: int
        Where there is no room, columns with the lowest one go first; 0 stays.
    is_number: bool
        Whether it stands at the right.
    is_prose: bool
        Whether it takes the room that the others leave, and is cut first.
    least: int
        How wide a column of prose is at least.
    """

    name: str
    importance: int = 0
    is_number: bool = False
    is_prose: bool = False
    least: int = 14


GAP = "  "


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Part]], width: int, kept: str = ""
) -> tuple[Line, list[Line]]:
    """Return the heading and the lines of a table that is as wide as the screen. A column that is to be `kept`, because
    it is sorted by, stays."""
    used = [*range(len(columns))]
    natural = [max([cells(column.name), *(cells(row[at][0]) for row in rows)]) for at, column in enumerate(columns)]

    def least(at: int) -> int:
        return min(natural[at], columns[at].least) if columns[at].is_prose else natural[at]

    while sum(map(least, used)) + len(GAP) * (len(used) - 1) > width:
        spare = [at for at in used if columns[at].importance and columns[at].name != kept]
        if not spare:
            break
        used.remove(min(spare, key=lambda at: columns[at].importance))
    widths = {at: least(at) for at in used}
    left = width - sum(widths.values()) - len(GAP) * (len(used) - 1)
    for at in used:
        if columns[at].is_prose:
            more = min(max(left, 0), natural[at] - widths[at])
            widths[at] += more
            left -= more
    if left < 0:  # the first column is too wide
        widths[used[0]] = max(widths[used[0]] + left, 1)

    def line(parts: Sequence[Part]) -> Line:
        found: Line = []
        for position, at in enumerate(used):
            text, style = parts[at]
            found += [(GAP, "")] if position else []
            found.append((fit(text, widths[at], is_right=columns[at].is_number), style))
        return found

    return line([(column.name, "heading") for column in columns]), [line(row) for row in rows]


def fit(text: str, width: int, *, is_right: bool = False) -> str:
    """Return a text in one line that takes so many columns of the screen."""
    text = one_line(text, MESSAGE)
    if cells(text) > width:
        text = cut_to(text, width)
    blank = " " * (width - cells(text))
    return blank + text if is_right else text + blank


def cells(text: str) -> int:
    """Return how many columns of the screen a text takes: Chinese characters take two."""
    from rich.cells import cell_len

    return cell_len(text)


def cut_to(text: str, width: int) -> str:
    """Return the beginning of a text that takes more columns, and a sign that it is cut."""
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, max(width - 1, 0))}…" if width else ""


def line(*parts: str | Part) -> Line:
    """Return a line of parts, of which those without a style are plain."""
    return [(part, "") if isinstance(part, str) else part for part in parts]


def paragraphs(text: str, width: int, style: str = "", most: int = 6) -> Iterator[Line]:
    """Yield a text in lines that are no wider than the screen, up to some."""
    lines = wrap(one_line(text, MESSAGE), max(width, 10)) or [""]
    for each in lines[:most]:
        yield [(each, style)]
    if len(lines) > most:
        yield [(f"({len(lines) - most} more lines)", "weak")]


def joined(left: Line, right: Line, width: int) -> Line:
    """Return a line with something at its right end, if there is room for both."""
    room = width - sum(cells(text) for text, _ in (*left, *right))
    return [*left, (" " * room, ""), *right] if room > 1 else left


def drawn(lines: Iterable[tuple[Line, bool]], width: int) -> Any:
    """Return lines, each with whether it is selected, for rich to draw."""
    from rich.console import Group
    from rich.text import Text

    texts = []
    for each, is_selected in lines:
        text = Text(no_wrap=True, overflow="ellipsis")
        for part, style in each:
            text.append(one_line(part, MESSAGE), STYLES.get(style, style))
        text.truncate(width, overflow="ellipsis", pad=is_selected)
        if is_selected:
            text.stylize("reverse")
        texts.append(text)
    return Group(*texts)


# Makes a line of a screen of some width.
Draw = Callable[[int], list[Line]]
