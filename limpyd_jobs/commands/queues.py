"""``limpyd-jobs queues``: what stands in each queue; pause, empty or delete a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.pause import FORCE, change_pauses, refuse_unknown
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, QUEUE_MODEL, VERB_OPTIONS
from limpyd_jobs.commands.shared.printing import Row, print_fitted, with_models
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.dates import shown_span
from limpyd_jobs.query import JobFilter, QueueState, delete_queue, queue_names, queue_states
from limpyd_jobs.texts import count_of, one_line
from limpyd_jobs.views.hints import unknown_classes
from limpyd_jobs.views.merged import states_of_all
from limpyd_jobs.views.verbs import QUEUED, Change, filters_of_queued

HEADING = (
    "queue",
    "priority",
    "waiting",
    "latency",
    "delayed",
    "running",
    "success list",
    "errors list",
    "quarantine",
    "state",
)


# The columns that a narrow terminal has no room for, the least important first.
SPARE = ("success list", "errors list", "latency", "priority", "model")  # the model tells queues of one name apart


class Queues(VerbCommand):
    """Exit status: 0; 1 if something could not be done, there is no such queue, or you answered no; 2 if the
    command line is wrong."""

    summary = "Show what stands in the queues, pause them, empty them, delete them"
    words = """[list|show|pause|resume|clear|delete] [NAME...] [options]

  list [NAME...]    how many jobs stand where, and the latency: for how long the job that is next has waited
  show NAME...      the same, with the classes of the jobs that wait and are delayed
  pause NAME...     let workers begin no more of its jobs; running jobs go on
  resume NAME...    let workers run its jobs again
  clear NAME...     delete the jobs that wait or are delayed
  delete NAME...    delete the queue, of all priorities, if it is empty; the records of its jobs stay

Without a word, it lists. clear and delete count first, and ask."""
    examples = (
        "limpyd-jobs queues",
        "limpyd-jobs queues pause mails",
        "limpyd-jobs queues clear mails --dry-run",
    )
    merged = ("", "list")
    option_list = (
        *COMMON_OPTIONS,
        QUEUE_MODEL,
        *for_verbs("pause", FORCE),
        *for_verbs("pause resume clear delete", *VERB_OPTIONS),
        JSON,
        JSONL,
    )

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "show": self._show,
            "pause": partial(change_pauses, self, pauses=True),
            "resume": partial(change_pauses, self, pauses=False),
            "clear": self._clear,
            "delete": self._delete,
        }

    def _states(self, names: Sequence[str]) -> list[QueueState]:
        states = self.look(queue_states, states_of_all, names=names or None, queue_model=self.options.queue_model)
        unknown = set(names) - {state.name for state in states}
        if unknown:
            refuse_unknown(self, min(unknown), queue_names(queue_model=self.options.queue_model))
        return states

    def _list(self, names: Sequence[str]) -> None:
        states = self._states(names)
        heading, *rows = table_of(states)
        self.print_list(states, heading, rows, SPARE)
        self.note(*unknown_classes(states if states else None))

    def _show(self, names: Sequence[str]) -> None:
        if not names:
            self.parser.error("show needs the name of a queue after it")
        states = self._states(names)
        self._refuse_same_names("show", names, states)
        by_class = {
            status: {name: JobFilter(queue=name, status=status).facets("class").counts for name in names}
            for status in QUEUED
        }
        self.note(*unknown_classes(states))
        if self.print_as_json({"queues": states, **by_class}):
            return
        print_fitted(table_of(states), SPARE)
        rows = [
            (name, status, f"{number:,}", path)
            for status, queues in by_class.items()
            for name, counts in queues.items()
            for path, number in counts.items()
            if number
        ]
        if rows:
            print()
            print_fitted([("queue", "status", "jobs", "class"), *rows])

    def _clear(self, names: Sequence[str]) -> int:
        if not names:
            self.parser.error("clear needs the name of a queue after it")
        self._refuse_same_names("clear", names, self._states(names))
        status = self.change_many(Change("delete", filters_of_queued(names)))
        left = [*unknown_classes(state for state in self._states(names) if state.waiting or state.delayed)]
        self.note(*left)
        return 1 if left else status

    def _refuse_same_names(self, verb: str, names: Sequence[str], states: Sequence[QueueState]) -> None:
        """Refuse a queue model if queues of others have the same names: jobs are found by the name of their queue."""
        others = [state for state in queue_states(names) if state not in states] if self.options.queue_model else []
        if len({(state.model, state.pk) for state in [*states, *others]}) > len(states):
            self.parser.error(f"{verb} is about the queues of a name of all models: leave out --queue-model")

    def _delete(self, names: Sequence[str]) -> int:
        if not names:
            self.parser.error("delete needs the name of a queue after it")
        states = self._states(names)
        empty = [state for state in states if not state.is_in_use]
        is_sure = self.options.dry_run or not empty or self.is_sure(f"delete {count_of(len(empty), 'empty queue')}?")
        if not is_sure:
            return 1
        outcomes = [self._delete_one(state) for state in states]
        told = zip(states, outcomes, strict=True)
        self.print_as_json([{"queue": it.name, "priority": it.priority, "outcome": each} for it, each in told])
        return 0 if all("deleted" in outcome for outcome in outcomes) else 1

    def _delete_one(self, state: QueueState) -> str:
        """Delete a queue if it is empty, and say so, unless JSON is printed; return the outcome."""
        if state.is_in_use:
            outcome = f"is not empty: {state.waiting:,} waiting, {state.delayed:,} delayed, {state.running:,} running"
        else:
            outcome = self.would_be("deleted") if self.options.dry_run else delete_queue(state, **self.how_audited)
            outcome = "has a job now, so it stays" if outcome == "used" else outcome
        if not (self.options.json or self.options.jsonl):
            print(f"{one_line(state.name)}, priority {one_line(state.priority)}: {outcome}")
        return outcome


def table_of(states: Sequence[QueueState]) -> list[Row]:
    return with_models(HEADING, map(as_row, states), [state.model for state in states], 1)


def as_row(state: QueueState) -> Sequence[object]:
    numbers = (state.delayed, state.running, state.success_list, state.errors_list, state.quarantine)
    shown = (f"{number:,}" for number in numbers)
    latency = shown_span(state.latency)
    return (state.name, state.priority, f"{state.waiting:,}", latency, *shown, "paused" if state.is_paused else "")
