"""``limpyd-jobs takeover``: what waits in the queues of another library becomes jobs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from limpyd_jobs.arguments import check_servable, stored_priority, stored_queue_name
from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commandline.parser import import_for
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, VERB_OPTIONS
from limpyd_jobs.commands.shared.printing import print_fields
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase, parse_database
from limpyd_jobs.texts import MESSAGE, count_of, one_line

if TYPE_CHECKING:
    from limpyd_jobs.contrib.takeover import Destination, Left, Moved, OldQueues, TakeOver


class Takeover(VerbCommand):
    """Exit status: 0; 1 if a job stays in the old queue, or you answered no; 2 if the command line is wrong."""

    summary = "Move what waits in the queues of RQ or arq to the queues here"
    words = """rq|arq --map=PATH [options]

It counts first, and asks. Jobs that run, have failed, or have what a job here does
not have, stay where they are. It can be interrupted, even killed, at any moment: type
the line again for the rest. Workers of the old library may go on meanwhile."""
    option_list = (
        *COMMON_OPTIONS,
        WorkerOption(
            "--from",
            dest="source",
            help="The database of the old queues, as --database takes it (default: that of the jobs)",
        ),
        WorkerOption(
            "--map",
            help="The path of a dictionary in your code: new functions, or job classes, by the paths of the old "
            "functions, e.g. --map=myapp.moved.JOBS",
        ),
        WorkerOption(
            "--queues",
            help="The old queues, joined by commas (default: rq: all; arq: arq:queue), each with the queue and the "
            "priority of its jobs here, if they are not those of the new function, e.g. "
            "--queues=high=mails:10,default=mails,low",
        ),
        WorkerOption(
            "--unpickle",
            action="store_true",
            help="Read jobs that are pickles, as those of both libraries are by default. To read a pickle runs "
            "whatever code it names: give it only if none but your own programs write to the old database",
        ),
        *VERB_OPTIONS,
        JSON,
        JSONL,
    )

    def verbs(self) -> Mapping[str, Verb]:
        from limpyd_jobs.contrib.takeover import RQ, Arq  # not at the start of completion, which lists the verbs

        return {"rq": lambda words: self._take_over(words, RQ), "arq": lambda words: self._take_over(words, Arq)}

    def _take_over(self, words: Sequence[str], library: type[OldQueues]) -> int:
        from limpyd_jobs.contrib.takeover import Moved, TakeOver

        if words or not self.given:
            self.parser.error("name one library: rq or arq")
        destinations = self._destinations()
        old = self._old(library, [*destinations])
        takeover = TakeOver(old, self._targets(), destinations, tell=self.note)
        planned = [*takeover.plan()]
        others = [(number, why) for number, why in old.others() if number]
        number = sum(isinstance(each, Moved) for each in planned)
        if self.options.dry_run or not (number or takeover.is_interrupted):
            return self._print(planned, others)
        if not self.is_sure(f"take over {count_of(number, 'job')}?"):
            return 1
        return self._print(self._done(takeover), others)

    def _done(self, takeover: TakeOver) -> list[Moved | Left]:
        found: list[Moved | Left] = []
        with self.audited("take over", f"{self.given[0]} --map={self.options.map}") as entry, self._noting_if_cut():
            try:
                for outcome in takeover.run():
                    found.append(outcome)
                    entry.numbers = {"done": sum(hasattr(each, "path") for each in found)}
            except LimpydJobsException as error:
                self.fail(1, str(error))
        return found

    def _destinations(self) -> dict[str, Destination]:
        """Return where the jobs of each old queue that is given go."""
        given = [name.strip() for name in (self.options.queues or "").split(",") if name.strip()]
        try:
            return dict(_destination(each) for each in given)
        except ValueError as error:
            self.parser.error(f"option --queues: {error}")

    def _old(self, library: type[OldQueues], queues: list[str]) -> OldQueues:
        source = self.options.source
        try:
            database = JobsDatabase(**parse_database(source)) if source else BaseJobsModel.database
        except ConfigurationException as error:
            self.parser.error(f"option --from: {error}")
        old = library(database.connection, queues, unpickle=bool(self.options.unpickle))
        if unknown := old.unknown_queues():
            there = (
                f"there are {', '.join(map(one_line, old.found_queues()))}" if old.found_queues() else "there is none"
            )
            names = ", ".join(map(repr, map(one_line, unknown)))
            self.parser.error(f"option --queues: no queue of {old.name} is named {names}: {there}")
        return old

    def _targets(self) -> Any:
        from limpyd_jobs.contrib.takeover import targets_of

        if not self.options.map:
            self.parser.error("say what becomes of the old functions: --map=myapp.moved.JOBS")
        try:
            return targets_of(import_for(self.parser, "map", self.options.map))
        except ConfigurationException as error:
            self.parser.error(f"option --map: {self.options.map}: {error}")

    def _print(self, outcomes: list[Moved | Left], others: list[tuple[int, str]]) -> int:
        from limpyd_jobs.contrib.takeover import Left, Moved

        moved = Counter(each[1:] for each in outcomes if isinstance(each, Moved))
        left = [each for each in outcomes if isinstance(each, Left)]
        values = {
            "moved": [
                {"function": old, "path": new, "destination": where or None, "number": number}
                for (old, new, where), number in moved.items()
            ],
            "left": [each._asdict() for each in left],
            "others": [{"number": number, "why": why} for number, why in others],
        }
        if not self.print_as_json(values):
            done = self.would_be("taken over")
            rows = [
                (f"{number:,}", f"{one_line(old)} {done}: {new}{f', in {where}' if where else ''}")
                for (old, new, where), number in moved.items()
            ]
            reasons = Counter(each.why for each in left)
            sample = {each.why: each.id for each in reversed(left)}
            rows += [(f"{number:,}", f"left, as {sample[why]}: {why}") for why, number in reasons.items()]
            rows += [(f"{number:,}", why) for number, why in others]
            print_fields([("jobs", ""), *(rows or [("0", "wait in the old queues")])], MESSAGE)
        return 1 if left else 0


def _destination(text: str) -> tuple[str, Destination]:
    """Read the name of an old queue, and where its jobs go: ``high=mails:10``."""
    from limpyd_jobs.contrib.takeover import Destination

    name, has_destination, where = text.rpartition("=")
    if not has_destination:
        return text, Destination()
    queue, _, priority = where.rpartition(":") if ":" in where else (where, "", "")
    if queue:
        check_servable(stored_queue_name(queue))
    return name, Destination(queue or None, int(stored_priority(priority)) if priority else None)
