"""The command ``limpyd-jobs-worker``."""

from __future__ import annotations

import sys

from limpyd_jobs.commandline.parser import LaxOptionParser, extend_python_path, import_worker_config, made_config
from limpyd_jobs.workers.config import WorkerConfig


def main() -> None:
    """Run the worker that the command line of this process describes."""
    parser = LaxOptionParser()
    early, _ = parser.parse_args(sys.argv[1:])
    extend_python_path(parser.parse_python_paths(sys.argv[1:]))
    config_class = import_worker_config(parser, early.worker_config, WorkerConfig) or WorkerConfig
    made_config(parser, config_class, early.worker_config).execute()


if __name__ == "__main__":
    main()
