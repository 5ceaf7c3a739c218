"""The cases of a test that leave nothing behind: ``@each``. All are one test, as each test costs what many cases do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with each case, as ``pytest.mark.parametrize``, with the same fixtures; a failure says which it was.

    What needs anew for each case what fixtures make, or a name on the command line, is parametrized.
    """
    words = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    given = [_given(words, case) for case in cases]
    assert given, f"no case of {names}"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            for case in given:
                try:
                    test(*args, **fixtures, **case)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in the case {case}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def _given(words: tuple[str, ...], case: Any) -> dict[str, Any]:
    values = case.values if isinstance(case, type(pytest.param())) else case if len(words) > 1 else (case,)
    return dict(zip(words, values, strict=True))
