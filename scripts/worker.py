#!/usr/bin/env python
"""Run a worker: the same as the command ``limpyd-jobs-worker``."""

from limpyd_jobs.scripts.worker import main

if __name__ == "__main__":
    main()
