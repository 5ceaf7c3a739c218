"""``limpyd-jobs quarantine``: entries of queues that no worker could do anything with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.commandline.options import WorkerOption, for_verbs
from limpyd_jobs.commands.pause import refuse_unknown
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, QUEUE_MODEL, VERB_OPTIONS
from limpyd_jobs.commands.shared.printing import print_fields
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.query import QuarantineEntry, leave_quarantine, quarantine_entries, queue_names
from limpyd_jobs.texts import count_of, one_line


class Quarantine(VerbCommand):
    """Exit status: 0; 1 if you answered no, or there is no such queue; 2 if the command line is wrong."""

    summary = "Show entries that no worker could do anything with, put them back in their queues, or drop them"
    words = """[list|retry|drop] [ENTRY...] [options]

  list             what is in the quarantine of each queue, the oldest first
  retry ENTRY...   put entries back in their queues, once they are repaired: limpyd-jobs check says what is wrong
  drop ENTRY...    drop entries; the records of jobs stay

Without a word, it lists. retry and drop need entries as list shows them, or --all, and ask."""
    examples = (
        "limpyd-jobs quarantine",
        "limpyd-jobs quarantine retry --all --dry-run",
    )
    option_list = (
        *COMMON_OPTIONS,
        QUEUE_MODEL,
        WorkerOption("--queue", action="append", help="Entries of this queue; may be repeated (default: of all)"),
        *for_verbs("retry drop", WorkerOption("--all", action="store_true", help="take all entries"), *VERB_OPTIONS),
        JSON,
        JSONL,
    )

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "retry": lambda words: self._leave("retry", "put back", words),
            "drop": lambda words: self._leave("drop", "dropped", words),
        }

    def _entries(self) -> list[QuarantineEntry]:
        asked, known = self.options.queue, queue_names(queue_model=self.options.queue_model)
        if unknown := {stored_queue_name(name) for name in asked or ()} - known:
            refuse_unknown(self, min(unknown), known)
        return quarantine_entries(asked, queue_model=self.options.queue_model)

    def _list(self, words: Sequence[str]) -> None:
        if words:
            self.parser.error(f"unexpected argument: {words[0]!r}; --queue names a queue")
        found = self._entries()
        self.print_list(found, ("queue", "priority", "entry"), (each[:3] for each in found))

    def _leave(self, verb: str, done: str, words: Sequence[str]) -> int:
        if bool(words) == bool(self.options.all):
            self.parser.error(f"say what to {verb}: give entries as list shows them, or --all")
        found = self._entries()
        unknown = set(words) - {name for each in found for name in _names_of(each)}
        if unknown:
            raise LookupError(f"{one_line(min(unknown))} is not in quarantine")
        asked = [each for each in found if self.options.all or not _names_of(each).isdisjoint(words)]
        if self.options.dry_run or not asked:
            return self._print(done, len(asked))
        if not self.is_sure(f"{verb} {count_of(len(asked), 'entry', 'entries')}?"):
            return 1
        number = leave_quarantine(asked, drop=verb == "drop", **self.how_audited)
        return self._print(done, number)

    def _print(self, done: str, number: int) -> int:
        if not self.print_as_json({"done": number}):
            print_fields([("entries", ""), (f"{number:,}", self.would_be(done))])
        return 0


def _names_of(found: QuarantineEntry) -> set[str]:
    """Return an entry as JSON has it, and as the table shows it."""
    return {found.entry, one_line(found.entry)}
