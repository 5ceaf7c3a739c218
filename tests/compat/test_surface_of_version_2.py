"""Whatever can be seen of version 2 is here, and is what it was, but for what the upgrade notes name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from cases import each
from servers import RedisServer
from versions import PATIENCE, Version

NOTES = Path(__file__).parents[2] / "docs" / "upgrading.rst"

Surface = Mapping[str, Any]


def surface_of(version: Version, server: RedisServer) -> dict[str, Any]:
    with server.client() as client:
        client.flushall()
    process = version.start("import surface; surface.main()", server.socket)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return dict(json.loads(output))


def fits(old: Any, new: Any) -> bool:
    """Whether what is there now does for what was there: it may have more parameters, values or keys at its end."""
    if isinstance(old, list) and isinstance(new, list) and old[:1] in (["method"], ["function"]):
        return new[: len(old)] == old and all(is_optional(one) for one in new[len(old) :])
    if isinstance(old, list) and isinstance(new, list):
        return len(new) >= len(old) and all(map(fits, old, new))
    return bool(old == new)


def is_optional(parameter: str) -> bool:
    return "=" in parameter or parameter.startswith("*")


def differences(old: Surface, new: Surface) -> dict[str, str]:
    """Return the names that are not there any more, or are something else."""
    return {
        name: f"{name} was {what}, is {new.get(name, 'not there')}"
        for name, what in old.items()
        if name not in new or not fits(what, new[name])
    }


def named_in_the_notes() -> list[str]:
    """The patterns of names at the beginning of the entries of the list of differences."""
    [entries] = re.findall(r"\.\. differences-begin\n(.*?)\n\.\. differences-end", NOTES.read_text(), re.DOTALL)
    heads = re.findall(r"^- (.*?):", entries, re.MULTILINE | re.DOTALL)
    return [name for head in heads for name in re.findall(r"``(.*?)``", head)]


@pytest.fixture(scope="module")
def surfaces(version_2: Version, version_3: Version, redis_server: RedisServer) -> Sequence[Surface]:
    return [surface_of(version, redis_server) for version in (version_2, version_3)]


@pytest.mark.proof
def test_all_that_can_be_seen_of_version_2_is_as_it_was(surfaces: Sequence[Surface]) -> None:
    found = differences(*surfaces)
    names = named_in_the_notes()
    unnamed = [text for name, text in found.items() if not any(fnmatchcase(name, pattern) for pattern in names)]
    assert not unnamed, "\n".join(unnamed)


@pytest.mark.proof
def test_the_notes_name_no_difference_that_is_none(surfaces: Sequence[Surface]) -> None:
    found = differences(*surfaces)
    assert [name for name in named_in_the_notes() if not any(fnmatchcase(other, name) for other in found)] == []


@pytest.mark.proof
def test_enough_is_compared(surfaces: Sequence[Surface]) -> None:
    old, _ = surfaces
    assert len(old) > 500
    assert {"Worker.job_success", "job.status", "options.queues", "option --queues", "limpyd_jobs.Queue"} <= set(old)


@each(
    ("old", "new", "does"),
    [
        (["method", "a", "b=1"], ["method", "a", "b=1"], True),
        (["method", "a", "b=1"], ["method", "a", "b=1", "c=2"], True),
        (["method", "a", "b=1"], ["method", "a", "b=2"], False),
        (["method", "a"], ["method", "a", "b"], False),
        (["method", "a"], ["method"], False),
        (["method", "a"], ["property"], False),
        (["value", ["tuple", "a"]], ["value", ["tuple", "a", "b"]], True),
        (["value", ["tuple", "a"]], ["value", ["tuple", "b", "a"]], False),
        (["value", None], ["value", False], False),
        (["field", "ListField", False], ["field", "SetField", False], False),
    ],
)
def test_the_comparison_sees_what_code_would_stumble_over(old: Any, new: Any, does: bool) -> None:
    assert fits(old, new) is does
