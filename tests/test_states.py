"""The table of states in the README says what the scripts' headers say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_readme_has_the_table_of_the_scripts() -> None:
    states = runpy.run_path(str(ROOT / "scripts" / "states.py"))
    text = (ROOT / "README.rst").read_text("utf-8")
    assert states["table"]() in text, "run: python scripts/states.py --write"
    assert states["with_table"](text) == text
