"""``limpyd-jobs shards``: another command, for each of several databases."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from optparse import Values
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.commands.shared.command import FLAGS, UNAVAILABLE, Command
from limpyd_jobs.commands.shared.options import SHARDS
from limpyd_jobs.commands.shared.printing import print_json, print_json_lines
from limpyd_jobs.exceptions import ConfigurationException, as_written
from limpyd_jobs.models import Job
from limpyd_jobs.query.overview import ping
from limpyd_jobs.shards.placing import Shards as Databases
from limpyd_jobs.texts import MESSAGE, is_meant, one_line

# The commands that can be run for shards.
COMMANDS = (
    *("audit", "backlog", "check", "errors", "info", "integrations", "jobs", "pause", "quarantine", "queues", "resume"),
    *("schedules", "stats", "top", "workers"),
)


class Shards(Command):
    """Exit status: the highest of all shards; 2 if the command line is wrong; 3 if a shard cannot be used: the others
    are asked all the same."""

    summary = "Run another command for several databases that have the jobs together, as if they were one"
    words = "--shards=URLS COMMAND [options]"
    ends = "; 130 after Ctrl-C"
    option_list = (
        SHARDS,
        WorkerOption(
            "--each", action="store_true", help="One shard after the other (default: merged, where that makes sense)"
        ),
    )

    def execute(self) -> int:
        self.parser.disable_interspersed_args()
        self.options, self.given = self.parser.parse_args(self.argv)
        name, *argv = self.given or [""]
        if name not in COMMANDS:
            what = f"no such command for shards: {name!r}" if name else "a command is needed"
            self.parser.error(f"{what}, one of: {', '.join(COMMANDS)}{is_meant(name, COMMANDS)}")
        if any(word.startswith("--database") for word in argv):
            self.parser.error("the databases are those of --shards: leave --database out")
        if not self.options.shards:
            self.parser.error("name the databases with --shards")
        try:
            shards = Databases.of_text(self.options.shards)
            command = self._command(name, argv)
            given, words = command.parser.parse_args(argv)
            if [*words, ""][0] in command.merged and not self.options.each:
                return self._run_merged(shards, command)
            if endless := _endless(name, given):
                self.parser.error(f"--each does not go with {endless}")
            return self._run_for_all(shards, name, argv)
        except ConfigurationException as error:
            self.parser.error(f"option --shards: {error}")

    def _command(self, name: str, argv: list[str]) -> Command:
        return self.siblings[name](self.parser.get_prog_name().replace("shards", name), argv)

    def _run_merged(self, shards: Databases, command: Command) -> int:
        """Run a command that looks at all shards by itself. Whatever it asks else, it asks one that answers."""
        seen, unseen = shards.each(ping)
        command.unseen = dict(unseen)
        if not seen:
            self.note(*command.not_seen())
            return UNAVAILABLE
        command.shards, command.place = shards, shards.databases[min(seen)].connection_settings
        try:
            status = command.execute()
        finally:  # also if what is asked for is not known
            self.note(*command.not_seen())
        return max(status, UNAVAILABLE) if command.unseen else status

    def _run_for_all(self, shards: Databases, name: str, argv: list[str]) -> int:
        is_json = bool({"--json", "--jsonl"} & {*argv})
        statuses, answers, unseen, missing = [0], list[Mapping[str, Any]](), list[str](), list[str]()
        for number in range(len(shards)):
            place = f"shard {number} of {len(shards)}, {shards.name_of(number)}"
            try:
                shards.on(Job, number)
                if not is_json:
                    print(*([] if number == 0 else [""]), f"=== {one_line(place)}", sep="\n", flush=True)
                command = self._command(name, argv)
                command.place = shards.databases[number].connection_settings
                status, text = _run(command, is_json)
            except RedisError as error:
                unseen.append(f"{place}: {cannot_use_redis(error, '--shards')}")
                continue
            except LookupError as error:
                missing.append(one_line(as_written(error, FLAGS), MESSAGE))
                if not is_json:
                    print(missing[-1])
                continue
            except SystemExit as error:  # the command said why
                if error.code != UNAVAILABLE:
                    raise
                unseen.append(place)
                continue
            statuses.append(status)
            answers += _answers(number, text, lines="--jsonl" in argv)
        if len(missing) == len(shards):
            self.parser.error(missing[0])
        if is_json:
            print_json_lines(answers) if "--jsonl" in argv else print_json(answers)
        self.note(*(f"NOT SEEN, so in none of the above: {one_line(each, MESSAGE)}" for each in unseen))
        return max([*statuses, UNAVAILABLE] if unseen else statuses)


def _endless(name: str, given: Values) -> str:
    """Return what lets a command not end by itself; empty if it does."""
    if name == "top":
        return name
    if getattr(given, "port", None) is not None:
        return "--port"
    return "--watch" if getattr(given, "watch", None) else ""


def _run(command: Command, is_json: bool) -> tuple[int, str]:
    """Run a command; return its exit status, and what it printed if that is JSON."""
    if not is_json:
        return command.execute(), ""
    with redirect_stdout(io.StringIO()) as printed:
        return command.execute(), printed.getvalue()


def _answers(number: int, text: str, *, lines: bool) -> list[Mapping[str, Any]]:
    """Return the JSON that a command printed, with the number of its shard."""
    if not text.strip():
        return []
    texts = text.splitlines() if lines else [text]
    return [{"shard": number, "answer": json.loads(each)} for each in texts]
