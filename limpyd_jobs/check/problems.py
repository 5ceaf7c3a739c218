"""The kinds of problems: the invariant that each breaks, a text about it, and its repair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from limpyd_jobs.dates import span

LEAVE = "leave"


@dataclass(frozen=True)
class Choices:
    """What a repair does about problems for which the user has to choose: see `check`."""

    unresolved: str = LEAVE
    unknown_status: str = LEAVE
    lease: float = 0.0

    @property
    def put_back(self) -> str:
        """What becomes of a job that is RUNNING without a lease, or without the claim of a worker."""
        if not self.lease:
            return "a worker of its queue puts it back at its next look, to be run again"
        return f"a worker of its queue puts it back after {span(self.lease)}, unless it ends before"

    def __post_init__(self) -> None:
        for name, words in WORDS.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be one of {', '.join(words)}, not {getattr(self, name)!r}")


WORDS = {"unresolved": (LEAVE, "quarantine", "delete"), "unknown_status": (LEAVE, "requeue", "delete")}


class Problem(NamedTuple):
    """One kind of problem: its text and its repair have ``{0}`` and ``{1}`` for its details."""

    invariant: str
    text: str
    repair: str = ""
    choice: str = ""
    repairs: Mapping[str, str] = MappingProxyType({})
    needs: str = ""

    def repair_by(self, choices: Choices) -> str:
        """Return what a repair does; empty if there is no repair."""
        return self.repairs.get(getattr(choices, self.choice), "") if self.choice else self.repair

    @property
    def option(self) -> str:
        """The options of the command line that would repair it; empty if there is no choice."""
        return f"--{self.choice.replace('_', '-')}={'|'.join(self.repairs)}" if self.choice else self.needs


NEEDING_NAME = "jobs for which no other queue is known: give it its name (HSET …:hash name NAME), and check again"

# Those that have the name of a field and a value of it as details.
OF_VALUES = ("not indexed", "not text", "no integer", "stale entry")

# That of an entry of a queue that may be any text.
OF_ANY_TEXT = "no ident"

# By the words that the scripts use, see lua/check/check_records.lua, stale_index_entries.lua, orphan_keys.lua,
# repair_placement.lua, repair_schedules.lua.
PROBLEMS = {
    # records
    "no hash": Problem("I1", "is in the collection, but does not exist", "removed from the collection"),
    "not a hash": Problem("I1", "its hash is a {1}", "deleted"),
    "not in the collection": Problem("I1", "is not in the collection", "added to the collection"),
    "left over": Problem("I1", "is what version 2 left of a record that it deleted", "deleted"),
    "not indexed": Problem("I2", "is not in the index of its {0} {1!r}", "added to the index"),
    "not text": Problem("I2", "its {0} is not UTF-8", "each byte that is not is written as \\xNN: {1!r}"),
    "no integer": Problem("I2", "its {0} is {1!r}, not an integer", "set to its default"),
    "odd pk": Problem("I1", "its pk is not a number of at most 18 digits: no filter finds it"),
    "unreadable": Problem("I10", "cannot be looked at: {1}"),
    # indexes and other keys
    "stale entry": Problem("I2", "is in the index of the {0} {1!r}, which it does not have", "removed from the index"),
    "not a set": Problem("I10", "an index that is a {0}", "deleted, and made anew"),
    "no owner": Problem("I10", "a {0} of a record that does not exist", "deleted"),
    "wrong type": Problem("I10", "is a {0}", "deleted; its jobs are put back"),
    "wrong type of a model": Problem("I10", "is a {0}", "deleted, and made anew"),
    "wrong type of a field": Problem("I10", "is a {0}"),
    "wrong type of what is shared": Problem("I10", "is a {0}, not a {1}: nothing can be noted there. Delete the key"),
    "audit ahead": Problem(
        "I10", "its last id, {0}, is in the future: later entries have no date, or cannot be written", "dated now"
    ),
    "being moved": Problem("I10", "{0}. Until all are, nothing is added and no job is run. Go on: {1} (or --undo)"),
    "no meaning": Problem("I10", "belongs to nothing that the model knows"),
    "no queue, but unknown jobs": Problem(
        "I10",
        "belongs to no queue, and holds jobs of unknown classes",
        choice="unresolved",
        repairs={"delete": "deleted"},
    ),
    "no queue, but live jobs": Problem("I10", f"belongs to no queue, and holds {NEEDING_NAME}"),
    "presence that ended": Problem("I10", "is left of a process that died: its presence ended at {0} (UTC)", "deleted"),
    "presence without an end": Problem("I10", "is a presence that never ends", "deleted"),
    "wrong counter": Problem(
        "I10", "is {0}, which gives no pk of at most 18 digits above the highest one, {1}", "set to the highest pk"
    ),
    # what cannot be looked at
    "class not known": Problem("I10", "{0} jobs of this class are not looked at: {1}", needs="--job-modules=MODULE"),
    "queues not known": Problem(
        "I10", "{0} queues of this model are not looked at, because it is not imported", needs="--job-modules=MODULE"
    ),
    "errors not known": Problem(
        "I10", "{0} errors of this model are not looked at, because it is not imported", needs="--job-modules=MODULE"
    ),
    # where jobs stand
    "not queued": Problem("I3", "is {status}, but not queued", "its queued is set"),
    "ended and queued": Problem("I3", "is {status}, but still queued", "its queued is removed"),
    "unknown status": Problem(
        "I3",
        "is in no queue, and its status is {0!r}, which is not a status",
        choice="unknown_status",
        repairs={"requeue": "put at the end of its list", "delete": "deleted"},
    ),
    "no status": Problem("I3", "its status is {status}, which is not a status", "set to what its place says"),
    "second of its identifier": Problem("I4", "another job of its identifier is queued, too", "canceled"),
    "in no list": Problem("I5", "is WAITING, but in no list", "put at the beginning of its list"),
    "in several places": Problem("I5", "stands more than once in {0} or in another queue", "stands there once"),
    "waits and is delayed": Problem("I5", "is WAITING, but also in {0}", "removed from there"),
    "no ident": Problem("I5", "is in {0}, and is not an ident of a job", "moved to the quarantine list"),
    "no such job": Problem("I5", "is in {0}, but does not exist", "removed from there"),
    "unknown class": Problem(
        "I5",
        "{0} jobs of this class stand in queues, but it cannot be imported: {1}",
        choice="unresolved",
        repairs={
            "quarantine": "moved to the quarantine lists of these queues",
            "delete": "removed from there",
        },
    ),
    "unknown class runs": Problem("I5", "{0} jobs of this class are being run, but it cannot be imported: {1}"),
    "no date": Problem("I6", "is DELAYED until {0!r}, not a date", "set to the date of its place, or to now"),
    "in no delayed set": Problem("I6", "is DELAYED, but in no delayed set", "put in {0}"),
    "wrong score": Problem("I6", "its date in {0} is not its delayed_until", "set to it"),
    "in several sets": Problem("I6", "is in {0} and in the delayed set of another queue", "is there only"),
    "delayed and waits": Problem("I6", "is DELAYED, but also in {0}", "removed from there"),
    "in no queue": Problem("I6", "is DELAYED, but it is not known in which queue"),
    "not claimed": Problem("I7", "is RUNNING, but no worker has a claim on it", "claimed by the check; {put_back}"),
    "presumed to run": Problem("I7", "is RUNNING, but only presumed to run: no worker has a claim on it", "{put_back}"),
    "no lease": Problem("I7", "is RUNNING, but without a lease", "{put_back}"),
    "several leases": Problem("I7", "has more than one lease", "the others are removed"),
    "runs and waits": Problem("I7", "is being run, but also in {0}", "removed from there"),
    "runs and is delayed": Problem("I7", "is being run, but also in {0}", "removed from there"),
    "lease of no worker": Problem("I7", "is in {0}, but no worker has a claim on it", "removed from there"),
    "token without lease": Problem("I7", "is {status}, but has a claim without a lease", "removed"),
    "ended and waits": Problem("I8", "is {status}, but in {0}", "removed from there"),
    "ended and is delayed": Problem("I8", "is {status}, but in {0}", "removed from there"),
    # queues
    "in a queue that is gone": Problem("I9", "its queue {0} does not exist", "set to the queue it is in"),
    "lost by a queue": Problem("I9", "is a queue that has lost what its indexes have: {0}", "restored"),
    "second queue": Problem("I9", "has the same name and priority as {0}", "moved there, and deleted"),
    "no priority": Problem("I9", "is a queue without a priority", "set to 0"),
    "no name": Problem("I9", "is a queue without a name", "deleted; its jobs are put in other queues"),
    "no name, but live jobs": Problem("I9", f"is a queue without a name, and holds {NEEDING_NAME}"),
    "no name, but unknown jobs": Problem(
        "I9",
        "is a queue without a name, and holds jobs of unknown classes",
        choice="unresolved",
        repairs={"delete": "deleted"},
    ),
    "unservable name": Problem(
        "I9",
        "no worker can serve it, because its name is {0!r}: workers strip names, and split them at commas. Try: {1}",
    ),
    # flows
    "flow not made": Problem("I10", "is a flow that its maker did not make to its end", "dropped, with its jobs"),
    "flow left to do": Problem(
        "I10", "is a flow of which a step was left, and no worker went on with it", "gone on with"
    ),
    "ends not noticed": Problem("I10", "is a flow that takes {0} jobs for open ones that have ended", "noticed"),
    "flow of a wrong type": Problem(
        "I10", "is a {0}: what the flow knew is lost. Delete the key: workers then cancel the jobs that wait for others"
    ),
    "flow out of turn": Problem(
        "I10", "is a flow that is held, though none of {0!r} runs that it waits for", "begun, or held in its turn"
    ),
    "left of a flow": Problem("I10", "is left of a flow that does not exist", "deleted"),
    "waits for a flow that is gone": Problem(
        "I10", "waits for other jobs of the flow {0}, which does not exist", "canceled"
    ),
    "waits for spawned jobs that are gone": Problem(
        "I10", "waits for the jobs that it spawned, whose flow {0} does not exist", "put in its queue, where it fails"
    ),
    # schedules
    "no such schedule": Problem("I11", "is among the schedules that are due, but does not exist", "removed from there"),
    "not among those due": Problem("I11", "is active, but not among the schedules that are due", "put there"),
    "due but not active": Problem("I11", "is among the schedules that are due, but not active", "removed from there"),
    "wrong due time": Problem("I11", "is due at {0}, which is not its next_run", "due at its next_run"),
    "due set of a wrong type": Problem("I11", "is a {0}", "deleted, and made anew"),
    "not to be enqueued": Problem("I11", "cannot be enqueued ({0!r}): {1}"),
    "class of a schedule not known": Problem("I11", "cannot be enqueued ({0!r}): {1}", needs="--job-modules=MODULE"),
}
