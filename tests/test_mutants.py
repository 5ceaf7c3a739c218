"""The mutants of scripts/mutants.py still fit the library: the script takes minutes, and so is not run each time."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutants.py"


def test_the_text_of_each_is_in_its_file_just_once() -> None:
    mutants = runpy.run_path(str(SCRIPT))["MUTANTS"]
    assert len(mutants) >= 30
    assert not [mutant.what for mutant in mutants if not mutant.is_applicable]
