"""How a command line is read, and how it is refused: in one line, with exit status 2."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from glob import glob
from itertools import chain
from optparse import BadOptionError, IndentedHelpFormatter, Option, OptionContainer, OptionParser, Values
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NoReturn

from redis.exceptions import ConnectionError, RedisError, TimeoutError

from limpyd_jobs.classes.imports import hint_for, import_class, why_not_imported
from limpyd_jobs.commandline import environment
from limpyd_jobs.commandline.options import EARLY_OPTIONS, WorkerOption, flag_of
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.exceptions import DatabaseMoved
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.texts import MESSAGE, is_meant, one_line


class UnknownOption(BadOptionError):
    """An option that does not exist; the message says which one may be meant."""

    def __init__(self, opt: str, hint: str) -> None:
        super().__init__(opt)
        self._hint = hint

    def __str__(self) -> str:
        return f"{super().__str__()}{self._hint}"


class WholeWords(IndentedHelpFormatter):
    """A help that fits the terminal, and breaks no line at a hyphen, as in ``--error-model``."""

    def format_usage(self, usage: str) -> str:
        """Break the lines of a usage: where the text of the second column begins, if there is one."""
        entries: list[str] = []
        for line in super().format_usage(usage).splitlines():
            goes_on = entries and ((line[:1].strip() and entries[-1][:1].strip()) or line.startswith(" " * 8))
            entries[-1:] = [f"{entries[-1]} {line.strip()}"] if goes_on else [*entries[-1:], line]
        broken = (
            fill(entry, self.width, subsequent_indent=" " * _column(entry), break_on_hyphens=False) for entry in entries
        )
        return "\n".join([*broken, ""])

    def expand_default(self, option: Option) -> str:
        return str(super().expand_default(option)).replace("-", "\u2011")

    def format_option(self, option: Option) -> str:
        return super().format_option(option).replace("\u2011", "-")


class WorkerOptionParser(OptionParser):
    """Says in one line what is wrong with a command line."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **{"formatter": WholeWords(), **attributes})

    def add_grouped_options(self, options: Sequence[Option]) -> None:
        """Add the options, those that have a ``group`` under its title, and those of the application at the end."""
        containers: dict[str, OptionContainer] = {"": self}
        for option in sorted(options, key=lambda option: not isinstance(option, WorkerOption)):
            title = getattr(option, "group", "")
            if title not in containers:
                containers[title] = self.add_option_group(title)
            containers[title].add_option(option)

    def add_option(self, *args: Any, **kwargs: Any) -> Option:
        """Add an option. One of the application replaces ours of its name, or of its flags, if version 2 lacks ours."""
        option = args[0] if args and isinstance(args[0], Option) else self.option_class(*args, **kwargs)
        if not isinstance(option, WorkerOption):
            self._give_way_to(option)
        return super().add_option(option)

    def _give_way_to(self, option: Option) -> None:
        ours = {flag: each for flag, each in self._long_opt.items() if isinstance(each, WorkerOption)}
        names = {each.dest for flag, each in ours.items() if each.is_new and flag in option._long_opts} | {option.dest}
        for flag, each in ours.items():
            if each.is_new and each.dest in names and self.has_option(flag):
                self.remove_option(flag)
            elif not each.is_new and flag in each.new_flags.intersection(option._long_opts):
                container = self.get_option_group(flag) or self
                self.remove_option(flag)
                container.add_option(each.without([flag]))

    def error(self, msg: str) -> NoReturn:
        """End the program with exit status 2 and the message, in one line, on standard error."""
        self.exit(2, f"{self.get_prog_name()}: error: {unbroken(msg)}\n")

    def exit(self, status: int = 0, msg: str | None = None) -> NoReturn:
        """End the program with an exit status, and a message on standard error."""
        super().exit(status, msg and on_stderr(as_typed(msg)))

    def format_help(self, formatter: Any = None) -> str:
        return as_typed(super().format_help(formatter))

    def _match_long_opt(self, opt: str) -> str:
        """Let an abbreviation stand for an option that has two spellings."""
        spellings = [flag for flag in self._long_opt if flag.startswith(opt)]
        if len({self._long_opt[flag] for flag in spellings}) == 1:
            return spellings[0]
        if not spellings:
            names = {flag.removeprefix("--"): flag for flag in self._long_opt}
            raise UnknownOption(opt, is_meant(opt.removeprefix("--"), names).replace("is ", "is --", 1))
        return super()._match_long_opt(opt)


def on_stderr(text: str) -> str:
    """Return a message as standard error shows it: on a terminal, in lines that end between two words."""
    if not (sys.stderr and sys.stderr.isatty()):
        return text
    width = get_terminal_size().columns
    lines = (
        fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
    return "\n".join(lines)


def _column(entry: str) -> int:
    """Return where the second column of a line of a usage begins, or else what follows it."""
    found = re.match(r" *\S.*? {2,}", entry)
    return len(found[0]) if found else 4 if entry.startswith(" ") else 0


def names_of_application(parser: OptionParser) -> set[str | None]:
    options = chain(parser.option_list, *(group.option_list for group in parser.option_groups))
    return {option.dest for option in options if not isinstance(option, WorkerOption)}


class LaxOptionParser(WorkerOptionParser):
    """Reads the options it has and passes over all others, to know some of them before the real parser exists."""

    def __init__(
        self, usage: str | None = None, option_list: Sequence[Option] = EARLY_OPTIONS, **attributes: Any
    ) -> None:
        super().__init__(usage, option_list, add_help_option=False, **attributes)

    def parse_python_paths(self, args: Sequence[str]) -> list[str]:
        """Return the directories, given as such or as patterns, that a command line adds to the Python path."""
        options, _ = self.parse_args(list(args))
        found = directories_of(options.pythonpath or environment.python_path())
        for path in found:
            if not os.path.exists(path):
                origin = "--pythonpath" if options.pythonpath else environment.PYTHONPATH
                text = f"warning: nothing is found there: {origin}={unbroken(path)}"
                print(f"{self.get_prog_name()}: {text}", file=sys.stderr)
        return found

    def lax_error(self, msg: str) -> NoReturn:
        self.error(msg)

    def print_lax_help(self) -> None:
        self.print_help()

    def _process_long_opt(self, rargs: list[str], values: Values) -> None:
        has_value = "=" in rargs[0]
        try:
            super()._process_long_opt(rargs, values)
        except BadOptionError:
            if has_value:
                rargs.pop(0)

    def _process_short_opts(self, rargs: list[str], values: Values) -> None:
        rargs.pop(0)


def directories_of(values: Iterable[str]) -> list[str]:
    """Return the directories that the values of ``--pythonpath`` name, as such or as patterns."""
    paths = [path for value in values for path in value.split(os.pathsep) if path]
    return [match for path in paths for match in sorted(glob(path)) or [path]]


def extend_python_path(directories: Iterable[str]) -> None:
    """Put directories first in `sys.path`, and the current one last, where it hides no module of another."""
    sys.path[:0] = map(os.path.abspath, directories)
    if not sys.flags.safe_path:  # which says that others may write there
        with suppress(OSError):  # it may have been deleted
            sys.path.append(os.getcwd())


def import_for(parser: OptionParser, name: str, path: str, origin: str = "") -> Any:
    """Return the object that the dotted path in an option names, or in what is said to be its origin, or let the parser
    refuse it."""
    try:
        return import_class(path)
    except Exception as error:  # the module may raise any exception
        refuse_import(parser, name, path, error, origin)


def refuse_import(parser: OptionParser, name: str, path: str, error: BaseException, origin: str = "") -> NoReturn:
    """Let the parser say, in one line, why an application's class cannot be used."""
    why = f"{why_not_imported(error)}{hint_for(error, path)}"
    parser.error(f'Unable to import "{name}", {origin or flag_of(name)}={path}: {why}')


def import_worker_config(parser: OptionParser, given: str | None, base: type) -> Any:
    """Return the class that an option, or the environment, names to read the options of a worker; None without."""
    path = given or environment.worker_config()
    if not path:
        return None
    found = import_for(parser, "worker_config", path, "" if given else environment.WORKER_CONFIG)
    require_subclass(parser, "worker_config", found, base)
    return found


def made_config(parser: OptionParser, config_class: Any, given: str | None, *argv: Any) -> Any:
    """Return a worker's configuration. What a class of the application does before it reads its options may fail."""
    try:
        return config_class(*argv)
    except Exception as error:
        if config_class.__module__.partition(".")[0] == __name__.partition(".")[0]:
            raise
        origin = "" if given else environment.WORKER_CONFIG
        refuse_import(parser, "worker_config", path_of(config_class), error, origin)


def require_subclass(parser: OptionParser, name: str, value: Any, base: type) -> None:
    """Let the parser refuse a value that is not the base class or a subclass."""
    if not (isinstance(value, type) and issubclass(value, base)):
        parser.error(f"option {flag_of(name)}: {path_of(value)} is not a subclass of {base.__name__}")


def path_of(value: Any) -> str:
    """Return the dotted path of a class or a function, or the representation of anything else."""
    try:
        return f"{value.__module__}.{value.__qualname__}"
    except AttributeError:
        return repr(value)


def cannot_use_redis(error: RedisError, named_by: str = "--database or LIMPYD_JOBS_DATABASE") -> str:
    if isinstance(error, DatabaseMoved):
        return unbroken(str(error))
    is_away = type(error) in (ConnectionError, TimeoutError)
    hint = f" Does a server run there? Name another one with {named_by}." if is_away else ""
    if is_of_wrong_type(error):
        hint = ": another program wrote a key of ours, which limpyd-jobs check names"
    reason = unbroken(str(error).partition(" script: ")[0])
    if is_away:
        reason = f"{reason.rstrip('.')}."
    return f"cannot use Redis: {reason}{hint}"


def unbroken(text: str) -> str:
    """Return the text without its line breaks; what would confuse a terminal is escaped."""
    return one_line(" ".join(text.split()), MESSAGE)
