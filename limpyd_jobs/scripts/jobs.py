"""The command ``limpyd-jobs``, whose first word says what to do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from optparse import OptionParser

from limpyd_jobs.commandline.parser import WorkerOptionParser
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.texts import is_meant
from limpyd_jobs.version import EXACT_VERSION

# A new one is a file in limpyd_jobs/commands and a row here: its module and its class there.
PLACES = {
    "check": "check:Check",
    "audit": "audit:Audit",
    "backlog": "backlog:Backlog",
    "completion": "completion:Completion",
    "errors": "errors:Errors",
    "flows": "flows:Flows",
    "integrations": "integrations:Integrations",
    "info": "info:Info",
    "jobs": "jobs:Jobs",
    "limits": "limits:Limits",
    "metrics": "metrics:Metrics",
    "move-to": "move_to:MoveTo",
    "pause": "pause:Pause",
    "quarantine": "quarantine:Quarantine",
    "queues": "queues:Queues",
    "resume": "pause:Resume",
    "schedules": "schedules:Schedules",
    "shards": "shards:Shards",
    "stats": "stats:Stats",
    "takeover": "takeover:Takeover",
    "top": "top:Top",
    "web": "web:Web",
    "workers": "workers:Workers",
}


class _Commands(Mapping[str, type[Command]]):
    """The commands by name. Each is imported when it is asked for, because all together take long."""

    def __getitem__(self, name: str) -> type[Command]:
        module, _, class_name = PLACES[name].partition(":")
        found: type[Command] = getattr(import_module(f"limpyd_jobs.commands.{module}"), class_name)
        found.siblings = self
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


COMMANDS = _Commands()

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
    option = argv[0].partition("=")[0] if argv else ""
    command = next((word for word in argv if word in COMMANDS), None)
    if command and option.startswith("-") and not parser.has_option(option):
        parser.error(f"{option} stands before the command: write {PROG} {command} {option}")
    _, words = parser.parse_args(argv)
    near = (_is_verb(words[0]) or is_meant(words[0], COMMANDS)) if words else ""
    what = f"no such command: {words[0]!r}" if words else "a command is needed"
    parser.error(f"{what}, one of: {', '.join(COMMANDS)}; limpyd-jobs-worker runs a worker{near}")


def _is_verb(word: str) -> str:
    """Ask at the end of a message if a verb is meant, with the names of its commands; return nothing if it is none."""
    from limpyd_jobs.commands.completion import words_of  # not at the start of each command

    found = [name for name, command in COMMANDS.items() if word in words_of(name, command).verbs]
    return f": is {' or '.join(f'{name} {word}' for name in found)} meant?" if found else ""


def create_parser() -> OptionParser:
    """Return the parser of what comes before the name of a command."""
    lines = "\n".join(f"  {name}  {command.summary}" for name, command in COMMANDS.items())
    usage = f"%prog command [options]\n\nCommands:\n{lines}\n\n%prog command --help tells more of one."
    text = f"%prog (redis-limpyd-jobs {EXACT_VERSION}, redis-limpyd {version('redis-limpyd')})"
    return WorkerOptionParser(prog=PROG, usage=usage, version=text)


if __name__ == "__main__":
    main()
