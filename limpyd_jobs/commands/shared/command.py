"""The base of all commands of ``limpyd-jobs``: how a command line is read, and how a command ends."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from optparse import Option, Values
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from redis.exceptions import ConnectionError, RedisError

from limpyd_jobs.classes.binding import concrete
from limpyd_jobs.commandline import environment
from limpyd_jobs.commandline.parser import (
    LaxOptionParser,
    WorkerOptionParser,
    cannot_use_redis,
    extend_python_path,
    import_for,
    import_worker_config,
    made_config,
    on_stderr,
    require_subclass,
)
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.commands.shared.options import COMMON, COMMON_OPTIONS, PYTHONPATH, QUEUE_MODEL
from limpyd_jobs.commands.shared.printing import Row, print_fitted, print_json, print_json_lines, with_shards, wrapped
from limpyd_jobs.exceptions import ConfigurationException, NotAudited, as_written
from limpyd_jobs.models import BaseJobsModel, Error, Queue, job_classes
from limpyd_jobs.query.foreign import foreign_keys
from limpyd_jobs.records.audit import Entry, audited
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.redis.database import database_name, parse_database
from limpyd_jobs.search.classes import queue_models_of
from limpyd_jobs.texts import MESSAGE, count_of, is_meant, one_line
from limpyd_jobs.views.documents import document

if TYPE_CHECKING:
    from limpyd_jobs.shards.placing import Shards

T = TypeVar("T")

# What a command line says for the parameters that exceptions name.
FLAGS = {
    "queue_name": "--queue",
    "queue_model": "name it with --queue-model",
    "priority": "--priority",
    "delayed_for": "--for",
    "delayed_until": "--until",
    "spread": "--spread",
    "rate": "--rate",
    "force": "--force",
    "after": "what the page before told after --after=",
    "unaudited": "--unaudited",
}

UNAVAILABLE = 3  # exit status: Redis cannot be used right now


class Command:
    """A command of ``limpyd-jobs``. A subclass does its work in `run`. Its docstring says how it ends, for the help."""

    summary = ""
    siblings: ClassVar[Mapping[str, type[Command]]] = {}
    words = ""  # and options, as the help shows them
    examples: Sequence[str] = ()  # command lines, as the help shows them
    first_words: Sequence[str] = ()  # of which it needs one, unless it has verbs
    ends = "; 3 if Redis cannot be used; 130 after Ctrl-C"
    option_list: tuple[Option, ...] = COMMON_OPTIONS
    options: Values  # with their classes imported; None for those that are not given
    given_options: Mapping[str, Any]  # without those that have their default
    given: list[str]  # the words of the command line
    place: Mapping[str, Any] | None = None  # the settings of the database, whatever the options and the application say
    merged: Sequence[str] = ()  # the verbs that look at all shards as if they were one database
    shards: Shards | None = None  # those to look at

    def __init__(self, prog: str, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.unseen: dict[int, str] = {}  # why a shard was not looked at, by its number
        statuses = " ".join(f"{type(self).__doc__ or ''}".split()).rstrip(".")
        examples = "".join(f"\n  {line}" for line in self.examples)
        usage = f"%prog {self.words or '[options]'}\n\n{self.summary}\n\n{statuses}{self.ends}."
        usage += f"\n\nExamples:{examples}" if examples else ""
        self.parser = WorkerOptionParser(prog=prog, usage=usage)
        self.parser.add_grouped_options(sorted(self.option_list, key=lambda each: getattr(each, "group", "") == COMMON))

    def run(self) -> int:
        """Do it, and return the exit status."""
        raise NotImplementedError

    def execute(self) -> int:
        """Do what the command line asks for, and return the exit status."""
        extend_python_path(LaxOptionParser(option_list=[PYTHONPATH]).parse_python_paths(self.argv))
        given, self.given = self.parser.parse_args(self.argv, Values())
        self.given_options = {**vars(given)}
        self.options = self.parser.get_default_values()
        vars(self.options).update(self.given_options)
        if self.given_options.keys() >= {"json", "jsonl"}:
            self.parser.error("--json and --jsonl do not go together")
        if self.given and not self.words:
            self.parser.error(f"unexpected argument: {self.given[0]!r}")
        try:
            self._configure()
            self._import()
            self._use_database()
            return self.run()
        except ConfigurationException as error:
            self.parser.error(str(error))
        except NotAudited as error:
            self.fail(UNAVAILABLE, one_line(as_written(error, FLAGS), MESSAGE))
        except RedisError as error:
            self.fail(UNAVAILABLE, cannot_use_redis(error))

    def look(self, read: Callable[..., T], together: Callable[[dict[int, T]], T], **how: Any) -> T:
        """Return what a function reads of the database; with shards, another one makes it of what it reads of each."""
        found = self.look_at_each(read, **how)
        return together(found) if self.shards else found[0]

    def look_at_each(self, read: Callable[..., T], **how: Any) -> dict[int, T]:
        """Return what a function reads of each shard, by its number; without shards, of the database.

        A shard that does not know of what is asked for, so that it is a `ValueError`, has nothing of it.
        """
        if self.shards is None:
            return {0: read(**how)}
        found, unseen = self.shards.each(lambda database: read(database=database, **how), (ValueError,))
        self.unseen |= unseen
        if not found:
            raise ConnectionError("; ".join(unseen.values()))
        return dict(found)

    def not_seen(self) -> list[str]:
        """Return a line for each shard that was not looked at."""
        lines = (
            f"NOT SEEN, so in none of the above: shard {which}, {why}" for which, why in sorted(self.unseen.items())
        )
        return [one_line(line, MESSAGE) for line in lines]

    def fail(self, status: int, text: str) -> NoReturn:
        self.parser.exit(status, f"{self.parser.get_prog_name()}: error: {text}\n")

    def print_list(
        self,
        values: Iterable[Any],
        heading: Row,
        rows: Iterable[Row],
        spare: Sequence[str] = (),
        shards: Sequence[int] | None = None,
    ) -> None:
        """Print a list as the options ask for: `values` as JSON, or `rows` as `print_fitted` does; with
        the number of the shard of each, if there are several."""
        table = [heading, *rows]
        if self.shards and shards is not None:
            values = ({"shard": number, **document(value)} for number, value in zip(shards, values, strict=True))
            table = with_shards(table, shards)
        if not self.print_as_json([*values]):
            print_fitted(table, spare)
        if len(table) == 1:
            self.note_foreign()

    def print_as_json(self, value: Any) -> bool:
        """Print a value as JSON, or a list of values in lines, if the options ask for it; return whether they do. What
        only tells what would be done is marked."""
        if not (self.options.jsonl or self.options.json):
            return False
        values = value if isinstance(value, list) else [value]
        if getattr(self.options, "dry_run", None):
            values = [{**document(each), "dry_run": True} for each in values]
        if self.options.jsonl:
            print_json_lines(values)
        else:
            print_json(values if isinstance(value, list) else values[0])
        return True

    def print_notes(self, lines: Iterable[str]) -> None:
        """Print what the JSON of a list has in its objects: lines below the table, as wide as the terminal."""
        if not (self.options.json or self.options.jsonl):
            for line in lines:
                print(wrapped(as_typed(one_line(line, MESSAGE))))

    def as_here(self, command: str) -> str:
        """Return another command line with the options of this one that name the database and the classes."""
        given = {name: getattr(self.options, name, None) for name in ("database", "pythonpath", "job_modules")}
        if self.place:
            given["database"] = database_name(dict(self.place))
        words = [
            f"--{name.replace('_', '-')}={value if isinstance(value, str) else ','.join(value)}"
            for name, values in given.items()
            for value in (values if name == "pythonpath" and values else [values])
            if value
        ]
        return " ".join([as_typed(command), *map(shlex.quote, words)])

    @property
    def how_audited(self) -> dict[str, Any]:
        """What functions that write to the audit are given."""
        return {"unaudited": bool(self.options.unaudited)}

    @contextmanager
    def audited(self, verb: str, what: str, **how: Any) -> Iterator[Entry]:
        """Write to the audit that a block begins, and how it ends: one is done, unless it says otherwise."""
        told = {"verb": verb, "filter": what, **self.how_audited, **how}
        with audited(BaseJobsModel.get_connection(), **told) as entry:
            yield entry
            entry.numbers = entry.numbers or {"done": 1}

    def is_sure(self, question: str) -> bool:
        """Ask whether to do something, unless ``--yes`` is given. Without a terminal to ask at, that is an error."""
        if self.options.yes:
            return True
        if not (sys.stdin and sys.stdin.isatty()):
            self.parser.error(f"{question} Give --yes to do so, or --dry-run for what would be done")
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if answer.strip().lower() in ("y", "yes"):
            return True
        if not answer:  # Ctrl-D
            print(file=sys.stderr)
        self.note("nothing was done")
        return False

    def would_be(self, done: str) -> str:
        return f"would be {done}" if self.options.dry_run else done

    def note_others(self, number: int, what: str, values: str) -> None:
        """Say how much the JSON leaves out; a table has a row for that."""
        if number and (self.options.jsonl or self.options.json):
            self.note(f"not printed: {count_of(number, what)} of other {values}. See --limit")

    def note_next_page(self, what: str, following: str | None, is_complete: bool) -> None:
        """Say how to go on behind a page, and whether it is short because there was no time."""
        if following:
            why = f"there are more {what}" if is_complete else f"there was no time to look at all {what}"
            self.note(f"{why}: {'see --limit' if self.shards else f'--after={following}'}")

    def note(self, *texts: str) -> None:
        """Say something on standard error, beside the output."""
        for text in texts:
            print(as_typed(on_stderr(f"{self.parser.get_prog_name()}: {one_line(text, MESSAGE)}")), file=sys.stderr)

    def note_unknown(self, lines: Callable[..., Iterable[str]], **how: Any) -> None:
        """Note the lines of a function about what is not known; with shards, those that are so for all of them."""
        first, *others = self.look_at_each(lambda **place: [*lines(**how, **place)]).values()
        self.note(*(line for line in first if all(line in each for each in others)))

    def note_foreign(self) -> None:
        """Note which keys another program wrote to: a list that is empty may not be."""
        texts = {text for found in self.look_at_each(foreign_keys).values() for text in found}
        self.note(*(f"not known: {text}. See limpyd-jobs check" for text in sorted(texts)))

    def refuse_after(self) -> None:
        """Refuse to go on after a page of several shards."""
        if self.shards and self.options.after:
            self.parser.error("--after goes on in one shard: name it with --database")

    def _configure(self) -> None:
        """Take from the environment what the options do not say, and do what the application does before its worker. If
        that does nothing, set Django up."""
        takes_classes = hasattr(self.options, "job_modules")
        if takes_classes:
            self.options.job_modules = self.options.job_modules or environment.job_modules()
        if not (takes_classes and (self.options.worker_config or environment.worker_config())):
            environment.set_up_django()
            return
        from limpyd_jobs.workers.config import WorkerConfig  # it takes long

        database = [f"--database={self.options.database}"] if self.options.database else []
        config_class = import_worker_config(self.parser, self.options.worker_config, WorkerConfig)
        argv = [self.parser.get_prog_name(), "--no-title", *database]
        made_config(self.parser, config_class, self.options.worker_config, argv).prepare_models()

    def _import(self) -> None:
        if getattr(self.options, "job_modules", None):
            try:
                job_classes.load(self.options.job_modules)
            except ConfigurationException as error:
                self.parser.error(f"option --job-modules: {error}")
        for name, base in (("queue_model", Queue), ("error_model", Error)):
            path = getattr(self.options, name, None)
            if path:
                by_name = {each._name: each for each in [base, *concrete(base)]}  # as lists show a model
                if ":" in path and path not in by_name and QUEUE_MODEL in self.option_list:
                    continue  # the database knows it
                model = by_name.get(path) or import_for(self.parser, name, path)
                require_subclass(self.parser, name, model, base)
                setattr(self.options, name, model)

    def _use_database(self) -> None:
        if self.place or self.options.database:
            try:
                settings = self.place or parse_database(self.options.database)
            except ConfigurationException as error:
                self.parser.error(f"option --database: {error}")
            for model in self._models():
                model.database.reset(**settings)
        name = getattr(self.options, "queue_model", None)
        if isinstance(name, str):
            known = {model.name: model for model in queue_models_of(None)}
            if self.shards:  # which show it without the tag of a cluster
                known |= {without_tag(each): model for each, model in known.items()}
            if name not in known:
                self.parser.error(f"option --queue-model: {one_line(name)} is not known{is_meant(name, known)}")
            self.options.queue_model = known[name]

    def _models(self) -> list[Any]:
        given = (getattr(self.options, name, None) for name in ("queue_model", "error_model"))
        return [BaseJobsModel, *(model for model in given if isinstance(model, type))]
