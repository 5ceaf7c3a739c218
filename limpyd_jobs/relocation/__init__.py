"""Moving all jobs of a database to another one: from one server to a cluster, back, or to another server."""

from limpyd_jobs.relocation.relocating import Moved, Plan, Relocation
from limpyd_jobs.relocation.sides import NotMoved

__all__ = ["Moved", "NotMoved", "Plan", "Relocation"]
