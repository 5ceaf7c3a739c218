"""The scripts of the library."""

from __future__ import annotations

from limpyd_jobs.check import scripts
from limpyd_jobs.models import timed
from limpyd_jobs.models.following import emitting, progress
from limpyd_jobs.query import queues
from limpyd_jobs.records import audit, known_classes, metrics, presences, records
from limpyd_jobs.redis import calls
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.transitions import claiming, editing, ending, flows, limits, many, placing, pruning, recovering

MODULES = (
    placing,
    claiming,
    editing,
    ending,
    recovering,
    pruning,
    flows,
    calls,
    audit,
    metrics,
    presences,
    records,
    known_classes,
    timed,
    many,
    queues,
    limits,
    progress,
    emitting,
    scripts,
)
ALL_SCRIPTS = [each for module in MODULES for each in vars(module).values() if isinstance(each, Script)]
