"""The table of states in the manual is made of the scripts' headers."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_table_has_a_row_for_each_transition() -> None:
    states = runpy.run_path(str(ROOT / "scripts" / "states.py"))
    assert [verb.replace(" ", "_") for verb, *_ in states["rows"]()] == [*states["VERBS"]]
