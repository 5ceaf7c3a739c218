"""`each` runs a test with all its cases, and says which one failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import each

seen: list[tuple[int, str]] = []


@each("number", [1, pytest.param(2, id="two")])
@each(("word", "end"), [("a", "."), ("b", "!")])
def test_each_case_is_run_with_the_fixtures_of_the_test(number: int, word: str, end: str, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    seen.append((number, word + end))


def test_no_case_is_left_out() -> None:
    seen.clear()
    test_each_case_is_run_with_the_fixtures_of_the_test(tmp_path=Path.cwd())
    assert seen == [(1, "a."), (1, "b!"), (2, "a."), (2, "b!")]


@pytest.mark.parametrize("fails", [lambda: pytest.fail("on purpose"), lambda: [].index(1)])
def test_a_failure_names_its_case(fails: object) -> None:
    ran = []

    @each("number", [1, 2, 3])
    def test(number: int) -> None:
        ran.append(number)
        if number == 2:
            fails()  # type: ignore[operator]

    with pytest.raises((ValueError, pytest.fail.Exception)) as failure:
        test()  # type: ignore[call-arg]
    assert failure.value.__notes__ == ["in the case {'number': 2}"]
    assert ran == [1, 2]


def test_no_case_at_all_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no case of number"):
        each("number", [])
