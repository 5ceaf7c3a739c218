"""``limpyd-jobs completion``: a script that lets a shell complete the commands, their verbs and options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from optparse import Option, OptionParser
from typing import NamedTuple

from redis.exceptions import RedisError

from limpyd_jobs.commandline.parser import WorkerOptionParser
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import PYTHONPATH
from limpyd_jobs.commands.shared.verbs import VerbCommand
from limpyd_jobs.models import WorkerPresence
from limpyd_jobs.query import fingerprints, paused_queues, queue_names, words_of_errors, words_of_jobs
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.search.classes import classes_of
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.config import WorkerConfig

PROG, WORKER = "limpyd-jobs", "limpyd-jobs-worker"

# The word with which the scripts ask for words: limpyd-jobs completion words COMMAND [VERB].
CANDIDATES = "words"


# A shell expands what it is given: what could mean more than itself, or be taken for an option, is left out.
_HARMLESS = re.compile(r"(?!-)[\w.:=@%+,/-]+", re.ASCII)


def candidates(command: str, verb: str) -> list[str]:
    """Return the words that may follow a command, and its verb."""
    find = _BY_VERB.get((command, verb)) or _BY_COMMAND.get(command)
    return sorted({word for word in find() if _HARMLESS.fullmatch(word)}) if find else []


_BY_VERB: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("errors", "show"): fingerprints,
    ("errors", "requeue"): fingerprints,
    ("jobs", "add"): lambda: classes_of(None),
}
_BY_COMMAND: dict[str, Callable[[], Iterable[str]]] = {
    "errors": words_of_errors,
    "jobs": words_of_jobs,
    "pause": queue_names,
    "queues": queue_names,
    "resume": lambda: (name for _, name in paused_queues()),
    "schedules": lambda: filter(None, Schedule.collection().values_list("name", flat=True)),
    "workers": lambda: (worker.name for worker in WorkerPresence.alive()),
}

# The commands after which there are such words.
OFFERING = frozenset(_BY_COMMAND)


class Words(NamedTuple):
    """The words that may follow a command. The name of an option that takes a value ends in ``=``."""

    summary: str
    verbs: Sequence[str]
    options: Mapping[str, str]


class Completion(Command):
    """Exit status: 0; 2 if the command line is wrong."""

    summary = "Print a script that lets a shell complete commands, verbs, options, and what is stored"
    words = """bash|zsh|fish

  bash: source <(limpyd-jobs completion bash)
  zsh:  source <(limpyd-jobs completion zsh)
  fish: limpyd-jobs completion fish | source

After a verb, it asks the database of LIMPYD_JOBS_DATABASE for queues, classes, causes, workers and schedules."""
    first_words = ("bash", "zsh", "fish")
    option_list = (PYTHONPATH,)

    def execute(self) -> int:
        """Print the script; no database is used, but for the words that the script itself asks for."""
        _, given = self.parser.parse_args(self.argv)
        if given[:1] == [CANDIDATES] and len(given) in (2, 3):
            return self._print_candidates(*given[1:])
        if len(given) != 1 or given[0] not in SHELLS:
            self.parser.error(f"say for which shell: {', '.join(SHELLS)}")
        words = {name: words_of(name, command) for name, command in self.siblings.items()}
        print("\n".join(SHELLS[given[0]](words)))
        return 0

    @staticmethod
    def _print_candidates(name: str, verb: str = "") -> int:
        with suppress(RedisError):  # a shell that completes says nothing of it
            print("\n".join(candidates(name, verb)))
        return 0


def words_of(name: str, command_class: type[Command]) -> Words:
    command = command_class(f"{PROG} {name}", [])
    verbs = list(command.verbs()) if isinstance(command, VerbCommand) else command.first_words
    return Words(command.summary, verbs, _options_of(command.parser))


def _options_of(parser: OptionParser) -> dict[str, str]:
    every: list[Option] = [*parser.option_list, *(each for group in parser.option_groups for each in group.option_list)]
    return {
        f"{flag}{'=' if option.takes_value() else ''}": one_line(option.help or "", MESSAGE)
        for option in every
        for flag in option._long_opts
    }


def worker_options() -> dict[str, str]:
    parser = WorkerOptionParser(prog=WORKER)
    parser.add_grouped_options(WorkerConfig.option_list)
    return _options_of(parser)


def bash(words: Mapping[str, Words]) -> Iterator[str]:
    yield "_limpyd_jobs() {"
    yield from _TOKEN
    yield f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(words)} --help --version"; else'
    yield '  case "${COMP_WORDS[1]}" in'
    for name, each in words.items():
        others = "verb=; " if not each.verbs else f'[ "$COMP_CWORD" -eq 2 ] && words="{" ".join(each.verbs)}" || '
        if name in OFFERING:
            others += f'words="$({PROG} completion {CANDIDATES} {name} "$verb" 2>/dev/null)"'
        else:
            others += "true"
        yield f'    {name}) case "$token" in -*) words="{" ".join(each.options)}";; *) {others};; esac;;'
    yield "  esac; fi"
    yield from _ANSWER
    yield "_limpyd_jobs_worker() {"
    yield from _TOKEN
    yield f'  words="{" ".join(worker_options())}"'
    yield from _QUEUES
    yield from _ANSWER
    yield f"complete -F _limpyd_jobs {PROG}"
    yield f"complete -o default -F _limpyd_jobs_worker {WORKER}"


# Bash takes = and : for words of their own, behind which an empty one begins. The token is all since the last space.
_TOKEN = (
    '  local word="${COMP_WORDS[COMP_CWORD]}" verb="${COMP_WORDS[2]}" words="" line="${COMP_LINE:0:$COMP_POINT}"',
    '  local token="${line##* }"; [ -n "$line" ] || token="$word"',
    '  case "$word" in =|:) word="";; esac',
    '  case "$token" in --*=*) type compopt >/dev/null 2>&1 && compopt -o default 2>/dev/null;; esac',
)

# Behind the last comma of a list of queues, any queue may follow.
_QUEUES = (
    '  case "$token" in --queues=*) local before="${token%"${token##*[=,]}"}" name; words=""',
    f"    for name in $({PROG} completion {CANDIDATES} queues 2>/dev/null)",
    '      do words="$words $before$name"; done;; esac',
)

# An option that takes a value is followed by the value, not by a space.
_ANSWER = (
    '  COMPREPLY=($(compgen -W "$words" -- "$token")); COMPREPLY=("${COMPREPLY[@]#"${token%"$word"}"}")',
    '  [ -n "${COMPREPLY[*]}" ] || COMPREPLY=()',
    '  case "${COMPREPLY[0]}" in *=) type compopt >/dev/null 2>&1 && compopt -o nospace 2>/dev/null;; esac',
    "  return 0",
    "}",
)


def zsh(words: Mapping[str, Words]) -> Iterator[str]:
    """Yield the lines for zsh, which can read the script of bash."""
    yield "autoload -U +X compinit && compinit"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from bash(words)


def fish(words: Mapping[str, Words]) -> Iterator[str]:
    yield _fish(PROG, "-f", "")
    for name, each in words.items():
        yield _fish(PROG, f"-n __fish_use_subcommand -f -a {name}", each.summary)
        after = f"contains -- {name} (commandline -opc)[2]"  # several commands have verbs that are commands, too
        if each.verbs:
            verbs = " ".join(each.verbs)
            yield _fish(PROG, f"-n '{after}; and not __fish_seen_subcommand_from {verbs}' -f -a '{verbs}'", "")
        verb = "(commandline -opc)[3]" if each.verbs else ""
        seen = f"; and __fish_seen_subcommand_from {' '.join(each.verbs)}" if each.verbs else ""
        if name in OFFERING:
            yield _fish(
                PROG, f"-n '{after}{seen}' -f -a '({PROG} completion {CANDIDATES} {name} {verb} 2>/dev/null)'", ""
            )
        for flag, text in each.options.items():
            yield _fish(PROG, f"-n '{after}' {_fish_option(flag)}", text)
    for flag, text in worker_options().items():
        yield _fish(WORKER, f"{_fish_option(flag)}{_FISH_QUEUES if flag == '--queues=' else ''}", text)


_FISH_QUEUES = f" -a '(__fish_append , ({PROG} completion {CANDIDATES} queues 2>/dev/null))'"


def _fish_option(flag: str) -> str:
    name = flag.removeprefix("--")
    return f"-l {name.rstrip('=')}{' -x' if name.endswith('=') else ''}"


def _fish(command: str, condition: str, text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c {command} {condition}{f''' -d '{escaped}' ''' if text else ''}".rstrip()


SHELLS: dict[str, Callable[[Mapping[str, Words]], Iterator[str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
