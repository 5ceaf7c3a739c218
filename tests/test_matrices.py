"""No case of a matrix is lost: what the quick tests and a row of ``.ci/run`` leave out, others run."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import matrices
import pytest
import rows
from cases import each

LETTERS, NUMBERS = "abcd", (1, 2, 3)


class Case(SimpleNamespace):
    """What is read of an item of pytest."""

    __hash__ = object.__hash__

    def get_closest_marker(self, name: str) -> Any:
        return getattr(pytest.mark, name)(*self.args).mark


def cases(*args: int, **parameters: Any) -> list[Any]:
    """All cases of a test with these parameters."""
    values = [dict(zip(parameters, each, strict=True)) for each in product(*parameters.values())]
    return [Case(nodeid=f"t.py::t[{each}]", args=args, callspec=SimpleNamespace(params=each)) for each in values]


def quick(items: list[Any]) -> list[Any]:
    proofs = [*matrices.cases_of_proofs(items)]
    return [item for item in items if item not in proofs]


def test_the_corners_have_each_value_and_are_few() -> None:
    corners = [case.callspec.params for case in quick(cases(letter=LETTERS, number=NUMBERS))]
    assert {case["letter"] for case in corners} == {*LETTERS}
    assert {case["number"] for case in corners} == {*NUMBERS}
    assert len(corners) == len(LETTERS)


def test_a_number_of_cases_is_spread_evenly() -> None:
    assert [case.callspec.params["number"] for case in quick(cases(3, number=range(9)))] == [0, 3, 6]


@each("number", [1, 2, 3, 7])
def test_rows_of_three_pythons_in_a_row_run_each_case_and_none_runs_all(number: int) -> None:
    items = cases(number=range(number))
    kept = [{*items} - {*rows.cases_left_out(items, "seed", row)} for row in (13, 14, 15)]
    assert set().union(*kept) == {*items}
    assert all(1 <= len(each) <= -(-number // 3) for each in kept)
