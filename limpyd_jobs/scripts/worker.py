"""The command ``limpyd-jobs-worker``."""

from __future__ import annotations

import sys

from limpyd_jobs.commandline.parser import LaxOptionParser, extend_python_path, import_for, require_subclass
from limpyd_jobs.workers.config import WorkerConfig


def main() -> None:
    """Run the worker that the command line of this process describes."""
    parser = LaxOptionParser()
    early, _ = parser.parse_args(sys.argv[1:])
    extend_python_path(parser.parse_python_paths(sys.argv[1:]))
    config_class = WorkerConfig
    if early.worker_config:
        config_class = import_for(parser, "worker_config", early.worker_config)
        require_subclass(parser, "worker_config", config_class, WorkerConfig)
    config_class().execute()


if __name__ == "__main__":
    main()
