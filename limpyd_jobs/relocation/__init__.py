"""Moving all jobs of a database to another one: from one server to a cluster, back, or to another server."""

from limpyd_jobs.relocation.relocating import Moved, NotMoved, Plan, Relocation

__all__ = ["Moved", "NotMoved", "Plan", "Relocation"]
