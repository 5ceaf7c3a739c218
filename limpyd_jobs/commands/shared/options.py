"""The options that several commands of ``limpyd-jobs`` have."""

from __future__ import annotations

from optparse import Option

from limpyd_jobs.commandline.options import SCRIPT_OPTIONS, WorkerOption, between, modules, part, rate, time_span

_OF_WORKERS = {option.get_opt_string(): option for option in SCRIPT_OPTIONS}

# It takes one value: words may follow.
PYTHONPATH = WorkerOption("--pythonpath", action="append", help=_OF_WORKERS["--pythonpath"].help)

# The options of commands that need no models of the application.
READING_OPTIONS: tuple[Option, ...] = (_OF_WORKERS["--database"], PYTHONPATH)

COMMON_OPTIONS: tuple[Option, ...] = (
    *READING_OPTIONS,
    WorkerOption(
        "--job-modules",
        check=modules,
        help="The modules and packages that define job classes, joined by commas, e.g. --job-modules=myapp.jobs: they "
        "are imported, packages with all that is in them; no job makes the command import others (default: the "
        "environment variable LIMPYD_JOBS_MODULES, or any module of jobs in the queues, if it defines a job class)",
    ),
    WorkerOption(
        "--worker-config",
        help="The class that limpyd-jobs-worker is given: it is made before anything else, e.g. to set Django up "
        "(default: the environment variable LIMPYD_JOBS_WORKER_CONFIG, or none)",
    ),
)

LIMIT = WorkerOption("--limit", type="int", default=50, check=between(1, 10_000), help="How many at most (default: 50)")
JSON = WorkerOption("--json", action="store_true", help="Print JSON (default: a table)")
JSONL = WorkerOption("--jsonl", action="store_true", help="Print JSON, one object per line (default: a table)")

ERROR_MODEL = WorkerOption(
    "--error-model", help="Errors of this model only, e.g. --error-model=my.module.ErrorModel (default: of all models)"
)
QUEUE_MODEL = WorkerOption(
    "--queue-model",
    help="Queues of this model only, e.g. --queue-model=my.module.QueueModel, or as lists show it (default: of all "
    "models)",
)

SHARDS = WorkerOption(
    "--shards",
    help="The databases: redis+cluster://redis-1,redis-2/shop?shards=8, or the URLs of all, with spaces in between, in "
    "the order in which they were first used",
)

DRY_RUN = WorkerOption("--dry-run", action="store_true", help="Only tell what would be done")
YES = WorkerOption("--yes", action="store_true", help="Do not ask")
UNAUDITED = WorkerOption(
    "--unaudited",
    action="store_true",
    help="Do it even if Redis refuses to write it to the audit, because it is full for example",
)
VERB_OPTIONS = (DRY_RUN, YES, UNAUDITED)

# So that many jobs are not run at once.
PACE_OPTIONS = (
    WorkerOption("--spread", check=time_span, help="one after the other, all in this time, as 90, 90s, 30m, 1h or 2d"),
    WorkerOption("--rate", check=rate, help="one after the other, so many of them in a time, as 50/s, 600/m or 1000/h"),
    WorkerOption(
        "--stop-if-failing",
        metavar="PART",
        check=part,
        help="follow the jobs until they end, and put no more back if more than this part fails again, as 20%%",
    ),
)
