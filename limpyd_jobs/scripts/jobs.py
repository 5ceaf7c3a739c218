"""The command ``limpyd-jobs``, whose first word says what to do."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import version
from io import TextIOWrapper
from optparse import OptionParser

from limpyd_jobs.commands.audit import Audit
from limpyd_jobs.commands.check import Check
from limpyd_jobs.commands.command import Command
from limpyd_jobs.commands.completion import Completion
from limpyd_jobs.commands.errors import Errors
from limpyd_jobs.commands.hosts import Hosts
from limpyd_jobs.commands.info import Info, Top
from limpyd_jobs.commands.jobs import Jobs
from limpyd_jobs.commands.pause import Pause, Resume
from limpyd_jobs.commands.quarantine import Quarantine
from limpyd_jobs.commands.queues import Queues
from limpyd_jobs.commands.schedules import Schedules
from limpyd_jobs.commands.stats import Stats
from limpyd_jobs.commands.workers import Workers
from limpyd_jobs.utils import is_meant
from limpyd_jobs.version import EXACT_VERSION
from limpyd_jobs.workers.parser import WorkerOptionParser

# A new one is a file in limpyd_jobs/commands and a row here.
COMMANDS: dict[str, type[Command]] = {
    "check": Check,
    "audit": Audit,
    "completion": Completion,
    "errors": Errors,
    "hosts": Hosts,
    "info": Info,
    "jobs": Jobs,
    "pause": Pause,
    "quarantine": Quarantine,
    "queues": Queues,
    "resume": Resume,
    "schedules": Schedules,
    "stats": Stats,
    "top": Top,
    "workers": Workers,
}

Completion.commands = COMMANDS

PROG = "limpyd-jobs"


def main() -> None:
    """Run the command that the command line of this process names, and end with its exit status."""
    if sys.stdout is None:
        sys.exit(f"{PROG}: error: standard output is closed")
    argv = sys.argv[1:]
    name = argv[0] if argv else ""
    if name not in COMMANDS:
        refuse(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever is stored, and whatever a terminal can show
    try:
        status = COMMANDS[name](f"{PROG} {name}", argv[1:]).execute()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BrokenPipeError:  # the reader has enough, as head has
        _write_no_more()
        status = 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is not None:  # not of the output
            raise
        _write_no_more()
        sys.exit(f"{PROG} {name}: error: the output cannot be written: {error.strerror}")
    sys.exit(status)


def _write_no_more() -> None:
    """Let the rest of the output go nowhere, so that Python does not fail once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refuse(argv: list[str]) -> None:
    """Answer a command line without a command: with the help, the version, or an error."""
    parser = create_parser()
    parser.disable_interspersed_args()
    _, words = parser.parse_args(argv)
    near = is_meant(words[0], COMMANDS) if words else ""
    what = f"no such command: {words[0]!r}" if words else "a command is needed"
    parser.error(f"{what}, one of: {', '.join(COMMANDS)}; limpyd-jobs-worker runs a worker{near}")


def create_parser() -> OptionParser:
    """Return the parser of what comes before the name of a command."""
    lines = "\n".join(f"  {name}  {command.summary}" for name, command in COMMANDS.items())
    usage = f"%prog command [options]\n\nCommands:\n{lines}\n\n%prog command --help tells more of one."
    text = f"%prog (redis-limpyd-jobs {EXACT_VERSION}, redis-limpyd {version('redis-limpyd')})"
    return WorkerOptionParser(prog=PROG, usage=usage, version=text)


if __name__ == "__main__":
    main()
