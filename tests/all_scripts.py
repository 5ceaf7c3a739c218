"""The scripts of the library."""

from __future__ import annotations

from limpyd_jobs import records, transitions
from limpyd_jobs.check import scripts
from limpyd_jobs.scripting import Script

MODULES = (transitions, records, scripts)
ALL_SCRIPTS = [each for module in MODULES for each in vars(module).values() if isinstance(each, Script)]
