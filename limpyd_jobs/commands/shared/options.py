"""The options that several commands of ``limpyd-jobs`` have."""

from __future__ import annotations

from optparse import Option

from limpyd_jobs.commandline.options import WorkerOption, between, modules, part, rate, time_span

# The title of what most commands have, in a line each: the manual says more.
COMMON = "Common options"

# The titles of what says how something is printed, and changed.
OUTPUT, CHANGES = "Output", "Changes"

DATABASE = WorkerOption(
    "--database",
    metavar="URL",
    group=COMMON,
    help="or host:port:db (default: LIMPYD_JOBS_DATABASE)",
)

# It takes one value: words may follow.
PYTHONPATH = WorkerOption(
    "--pythonpath",
    metavar="PATH",
    action="append",
    group=COMMON,
    help="of your modules (default: LIMPYD_JOBS_PYTHONPATH)",
)

# The options of commands that need no models of the application.
READING_OPTIONS: tuple[Option, ...] = (DATABASE, PYTHONPATH)

COMMON_OPTIONS: tuple[Option, ...] = (
    *READING_OPTIONS,
    WorkerOption(
        "--job-modules",
        metavar="A,B",
        check=modules,
        group=COMMON,
        help="modules of job classes (default: LIMPYD_JOBS_MODULES)",
    ),
    WorkerOption(
        "--worker-config",
        metavar="C",
        group=COMMON,
        help="a class (default: LIMPYD_JOBS_WORKER_CONFIG)",
    ),
)

LIMIT = WorkerOption("--limit", type="int", default=50, check=between(1, 10_000), help="How many at most (default: 50)")
JSON = WorkerOption("--json", action="store_true", group=OUTPUT, help="Print JSON (default: a table)")
JSONL = WorkerOption("--jsonl", action="store_true", group=OUTPUT, help="Print one object of JSON per line")

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

DRY_RUN = WorkerOption("--dry-run", action="store_true", group=CHANGES, help="Only tell what would be done")
YES = WorkerOption("--yes", action="store_true", group=CHANGES, help="Do not ask")
UNAUDITED = WorkerOption(
    "--unaudited",
    action="store_true",
    group=CHANGES,
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
        help="follow the jobs until they end, and put no more back if more than this part fails again, as 20%",
    ),
)
