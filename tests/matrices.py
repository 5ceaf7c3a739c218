"""Which cases of a large matrix are quick tests: ``@pytest.mark.matrix``. The others are proofs.

``matrix`` keeps as few cases as have each value of each parameter, ``matrix(5)`` five, evenly spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest


def cases_of_proofs(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that the quick tests do without. With ``-k`` or a path they are those of what is collected."""
    matrices: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("matrix"):
            matrices[item.nodeid.partition("[")[0]].append(item)
    for cases in matrices.values():
        marker = cases[0].get_closest_marker("matrix")
        assert marker
        quick = set(spread(cases, *marker.args) if marker.args else cover(cases))
        yield from (case for position, case in enumerate(cases) if position not in quick)


def spread(cases: list[pytest.Item], number: int) -> Iterable[int]:
    return (position * len(cases) // number for position in range(number))


def cover(cases: list[pytest.Item]) -> Iterator[int]:
    """The positions of cases that together have each value; of several, the one that has the most new ones."""
    parameters = [case.callspec.params for case in cases]  # type: ignore[attr-defined]
    values = [{(name, id(value)) for name, value in each.items()} for each in parameters]
    lacking = set().union(*values)
    while lacking:
        position = max(range(len(values)), key=lambda position: len(values[position] & lacking))
        lacking -= values[position]
        yield position
