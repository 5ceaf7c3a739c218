"""Metrics of all workers for Prometheus, from what they write to Redis: one endpoint serves all hosts."""

from limpyd_jobs.contrib.prometheus.collector import FleetCollector
from limpyd_jobs.contrib.prometheus.exposition import Exposition, exposition

__all__ = ["Exposition", "FleetCollector", "exposition"]
