"""The results: what was measured where."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from environments import Peer
from measures import MEASURES, Entry, Sizes
from server import Server

FORMAT = 1


@dataclass
class Row:
    """What was found of one entry: values by column, one per round, with the rates of the bare loop beside them."""

    peer: str
    variant: str
    title: str
    adding: str
    working: str
    versions: dict[str, str]
    is_limit: bool
    values: dict[str, list[float]] = field(default_factory=dict)
    bare: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self, column: str) -> float:
        """Return the median of the ratios to the bare loop of the same moment."""
        return median(value / bare for value, bare in zip(self.values[column], self.bare[column], strict=True))


@dataclass
class Results:
    """What one run found."""

    date: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    entries: list[Row] = field(default_factory=list)
    format: int = FORMAT

    @classmethod
    def of_this_machine(cls, server: Server, rounds: int, scale: float, sizes: Sizes) -> Results:
        """Return empty results, with what one has to know of the machine. Names and paths of it are not told."""
        machine = {
            "processor": processor_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "Python": platform.python_version(),
            "Redis": server.client.info("server")["redis_version"],
            "transport": "TCP, loopback",
        }
        settings = {"rounds": rounds, "scale": scale, "thrown away": 0, **asdict(sizes)}
        return cls(time.strftime("%Y-%m-%d", time.gmtime()), machine, settings)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write_results` wrote."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**raw, "entries": [Row(**row) for row in raw["entries"]]})

    def add_entry(self, entry: Entry) -> None:
        self.entries.append(_row(entry.peer, entry.variant, entry.title, entry.environment.versions))

    def add_missing(self, peer: Peer, reason: str) -> None:
        """Add a peer that could not be installed."""
        row = _row(peer, "default", peer.TITLE, {})
        row.failures = dict.fromkeys(MEASURES, without_paths(reason))
        self.entries.append(row)

    def add_values(self, entry: Entry, values: dict[str, float | None], bare: float) -> None:
        row = self._row_of(entry)
        for column, value in values.items():
            if value is not None:
                row.values.setdefault(column, []).append(value)
                row.bare.setdefault(column, []).append(bare)

    def add_failure(self, entry: Entry, name: str, reason: str) -> None:
        self._row_of(entry).failures[name] = without_paths(reason)

    def has_failed(self, entry: Entry, name: str) -> bool:
        return name in self._row_of(entry).failures

    def _row_of(self, entry: Entry) -> Row:
        return next(row for row in self.entries if (row.peer, row.variant) == (entry.peer.name, entry.variant))


def _row(peer: Peer, variant: str, title: str, versions: dict[str, str]) -> Row:
    working = peer.WORKERS.get(variant, "")
    return Row(peer.name, variant, title, peer.ADDING, working, versions, peer.name.startswith("bare"))


def processor_model() -> str:
    """Return the name of the processor's model, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def without_paths(text: str) -> str:
    """Return a text with the last part only of each path in it."""
    return re.sub(r"(?:/[\w.@+-]+)+/", "", text)
