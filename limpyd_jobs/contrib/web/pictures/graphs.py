"""The graph of a flow: boxes for its jobs, and lines from each to those that come after it, in pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from limpyd_jobs.views import Box, FlowGraph

# The sizes of a box, and the space between two: across a wide page, levels go to the right.
WIDE, HIGH, BETWEEN, BESIDE, EDGE = 196, 52, 44, 12, 16

# On a phone, levels go down, with two boxes beside each other in as many rows as they need. A line enters a box at its
# top, and leaves it at its bottom. Those that pass other rows run between the two boxes, each way in a lane of its own;
# those past other levels at the left.
PHONE, LEFT, HALF, GAP, DOWN, ROWS = 324, 12, 148, 16, 28, 24
MIDDLE = LEFT + HALF + GAP // 2
TO_ROWS, FROM_ROWS = MIDDLE - 4, MIDDLE + 4

# How many of the jobs that a job comes after are named.
MAX_NAMED = 3

# The colours of the lines that leave a box, by its state; others are grey.
LINES = {"error": "s-err", "deleted": "s-err", "success": "s-flow", "running": "s-run"}


class Placed(NamedTuple):
    """A box, and where it is; whether it stands in the first row of its level, and in the last one.

    `after` are the names of some jobs that a job comes after, and how many more these are, for who does not see lines.
    """

    box: Box
    x: int
    y: int
    width: int
    is_first: bool = True
    is_last: bool = True
    after: tuple[Sequence[str], int] = ((), 0)

    @property
    def height(self) -> int:
        return HIGH

    @property
    def middle(self) -> int:
        return self.y + HIGH // 2


class Line(NamedTuple):
    """A line: its path, and the class that gives it its colour."""

    path: str
    css: str


class Graph(NamedTuple):
    """A graph, drawn. `is_down` says whether its levels go down."""

    width: int
    height: int
    boxes: Sequence[Placed]
    lines: Sequence[Line]
    is_down: bool


def drawn(graph: FlowGraph, *, is_down: bool) -> Graph:
    """Place the boxes of a graph, and draw its lines."""
    sizes = Counter(box.level for box in graph.boxes)
    boxes = _down(graph.boxes, sizes) if is_down else _across(graph.boxes, sizes)
    width = PHONE if is_down else max((each.x for each in boxes), default=0) + WIDE + EDGE
    height = max((each.y for each in boxes), default=0) + HIGH + EDGE
    lines = [
        Line(
            _joined_down(boxes[source], boxes[target])
            if is_down
            else _joined_across(boxes[source], boxes[target], boxes, height - EDGE // 2),
            LINES.get(boxes[source].box.state, "s-idle"),
        )
        for source, target in graph.edges
        if boxes[source].box.level < boxes[target].box.level
    ]
    if not graph.is_grouped:
        boxes = [each._replace(after=graph.before(each.box.first, MAX_NAMED)) for each in boxes]
    return Graph(width, height, boxes, lines, is_down)


def _across(boxes: Sequence[Box], sizes: Counter[int]) -> list[Placed]:
    step, most = HIGH + BESIDE, max(sizes.values(), default=0)
    tops = {level: EDGE // 2 + (most - size) * step // 2 for level, size in sizes.items()}
    return [Placed(box, EDGE + box.level * (WIDE + BETWEEN), tops[box.level] + box.row * step, WIDE) for box in boxes]


def _down(boxes: Sequence[Box], sizes: Counter[int]) -> list[Placed]:
    tops, top = dict[int, int](), EDGE // 2
    for level in sorted(sizes):
        tops[level] = top
        top += (sizes[level] + 1) // 2 * (HIGH + ROWS) - ROWS + DOWN
    return [_placed_down(box, tops[box.level], sizes[box.level]) for box in boxes]


def _placed_down(box: Box, top: int, size: int) -> Placed:
    if size == 1:
        return Placed(box, LEFT + (PHONE - LEFT - WIDE) // 2, top, WIDE)
    row, column = divmod(box.row, 2)
    is_last = row == (size - 1) // 2
    return Placed(box, LEFT + column * (HALF + GAP), top + row * (HIGH + ROWS), HALF, row == 0, is_last)


def _joined_across(one: Placed, other: Placed, boxes: Sequence[Placed], below: int) -> str:
    """Go to the right; below all boxes, if one would be in the way."""
    x, y, end, down = one.x + WIDE, one.middle, other.x, other.middle
    between = range(one.box.level + 1, other.box.level)
    passes = any(each.box.level in between and abs(each.middle - down) <= HIGH for each in boxes)
    way, last, half = (below if passes else down), end - BETWEEN, BETWEEN // 2
    path = f"M{x} {y}C{x + half} {y} {x + half} {way} {x + BETWEEN} {way}"
    return path + (f"H{last}C{last + half} {way} {last + half} {down} {end} {down}" if passes else f"H{end}")


def _joined_down(one: Placed, other: Placed) -> str:
    """Go down: straight, or in a lane where other boxes are in between."""
    if one.is_last and other.is_first and other.box.level - one.box.level == 1:
        (x, y), (end, down) = _bottom(one, MIDDLE), (other.x + other.width // 2, other.y)
        turn = down - DOWN // 2
        return f"M{x} {y}V{max(down - DOWN, y)}C{x} {turn} {end} {turn} {end} {down}"
    lane = LEFT // 2 if other.box.level - one.box.level > 1 else TO_ROWS if one.is_last else FROM_ROWS
    (x, y), (end, down) = _bottom(one, lane), (other.x + other.width // 2, other.y)
    into = f"C{x} {y + ROWS} {lane} {y} {lane} {y + ROWS}"
    return f"M{x} {y}{into}V{down - ROWS}C{lane} {down} {end} {down - ROWS} {end} {down}"


def _bottom(placed: Placed, lane: int) -> tuple[int, int]:
    """Return where a line leaves a box: in the middle; above another row, near the lane, so that it crosses no line
    into that row."""
    if placed.is_last:
        return placed.x + placed.width // 2, placed.y + HIGH
    return (placed.x + placed.width - ROWS if placed.x < lane else placed.x + ROWS), placed.y + HIGH
