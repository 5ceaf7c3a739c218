"""Whatever users do, both versions say the same, and leave the same in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import stories
from compare import differences, same_after_all

Told = list[list[Any]]
DECLARED = [(name, pattern) for name, story in stories.STORIES.items() for pattern in story.not_copied]


@pytest.mark.matrix(24)
@pytest.mark.parametrize("name", stories.names())
def test_both_versions_tell_the_same_story(name: str, tellings: Mapping[str, tuple[Told, Told]]) -> None:
    old, new = tellings[name]
    failures = [event[2] for said in (old, new) for event in said if event[1] == "the story failed"]
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    if found := differences(old, new, stories.STORIES[name.partition("-")[0]].not_copied):
        pytest.fail(found, pytrace=False)


@pytest.mark.proof
@pytest.mark.parametrize(("name", "pattern"), DECLARED)
def test_what_is_declared_to_differ_does_differ(
    name: str, pattern: str, tellings: Mapping[str, tuple[Told, Told]]
) -> None:
    story = stories.STORIES[name]
    told = [tellings[f"{name}-{mode}".rstrip("-")] for mode in story.modes]
    assert not same_after_all(told, pattern), f"The same after all: {story.not_copied[pattern]}"
