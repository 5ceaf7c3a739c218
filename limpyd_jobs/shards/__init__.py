"""Several databases for the jobs of one application."""

from limpyd_jobs.shards.filter import Seen, ShardsFilter
from limpyd_jobs.shards.placing import Shards

__all__ = ["Seen", "Shards", "ShardsFilter"]
