"""The command ``limpyd-jobs-worker``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from glob import glob

from limpyd_jobs.workers.config import WorkerConfig
from limpyd_jobs.workers.options import EARLY_OPTIONS
from limpyd_jobs.workers.parser import LaxOptionParser, import_for, require_subclass


def main() -> None:
    """Run the worker that the command line of this process describes.

    ``--pythonpath`` and ``--worker-config`` are read before the rest, which they may change.
    """
    parser = LaxOptionParser(EARLY_OPTIONS)
    early, _ = parser.parse_args(sys.argv[1:])
    add_to_python_path(early.pythonpath or ())
    config_class = WorkerConfig
    if early.worker_config:
        config_class = import_for(parser, "worker_config", early.worker_config)
        require_subclass(parser, "worker_config", config_class, WorkerConfig)
    config_class().execute()


def add_to_python_path(values: Iterable[str]) -> None:
    """Put directories before all others in `sys.path`, in the order given.

    Each value is a directory, a pattern of some, or several of these joined by `os.pathsep`.
    """
    paths = [path for value in values for path in value.split(os.pathsep) if path]
    sys.path[:0] = [os.path.abspath(match) for path in paths for match in sorted(glob(path)) or [path]]


if __name__ == "__main__":
    main()
