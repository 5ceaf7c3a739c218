"""Break the library in many places, one at a time and in a copy, and say whether the tests notice.

``python scripts/mutants.py`` takes all; ``python scripts/mutants.py rescue`` those whose file or tests have such a
name. The exit status is not 0 if tests pass with a mutant, or if the text to replace is not in its file just once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("limpyd_jobs", "tests", "limpyd_jobs_pytest.py", "limpyd_jobs_startup.py", "pyproject.toml")
PATIENCE = 600  # seconds; a mutant that lets the tests hang is caught


@dataclass(frozen=True)
class Mutant:
    """A text of a file of the library, what stands there instead, and the tests that should notice."""

    what: str
    file: str
    text: str
    instead: str
    tests: str

    @property
    def is_applicable(self) -> bool:
        return (ROOT / "limpyd_jobs" / self.file).read_text("utf-8").count(self.text) == 1

    def is_caught(self) -> bool:
        """Return whether a test fails in a copy with this fault."""
        with tempfile.TemporaryDirectory(prefix="mutant-") as name:
            copy = Path(name)
            copy_to(copy)
            path = copy / "limpyd_jobs" / self.file
            path.write_text(path.read_text("utf-8").replace(self.text, self.instead), "utf-8")
            return tests_fail(copy, [f"tests/{each}" for each in self.tests.split()])


def copy_to(folder: Path) -> None:
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)


def tests_fail(folder: Path, tests: list[str]) -> bool:
    """Whether the quick tests among them fail."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not proof", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


ADD, CLAIM, SUCCEED_MANY = "transitions/test_add.py", "transitions/test_claim.py", "transitions/test_succeed_many.py"
SUCCEED, FAIL, RELEASE = (f"transitions/test_{name}.py" for name in ("succeed", "fail", "release"))
RESCUE, PROMOTE = "transitions/test_rescue.py", "transitions/test_promote.py"
RUNNING = "send('ZADD', base .. ':_running', score(now() + lease * 1000000 - (number or 0)), job.ident)"
RENEWED = "redis.call('ZADD', base .. ':_running', score(now() + lease * 1000000), job.ident)"
PROMOTED = "  redis.call('ZREM', queue .. ':delayed', ident)\n  done = done + 1\nend\n\nlocal function wake_safely"

MUTANTS = [
    Mutant(
        "a running job is moved when it is added again",
        "lua/includes/adding.lua",
        "local is_running = status == STATUSES.RUNNING or token",
        "local is_running = false",
        ADD,
    ),
    Mutant(
        "an identifier is queued twice",
        "lua/includes/adding.lua",
        "  if existing and not is_ending then",
        "  if false then",
        ADD,
    ),
    Mutant(
        "a priority is compared as text",
        "lua/includes/adding.lua",
        "if difference ~= 0 or #one ~= #other then",
        "if false then",
        ADD,
    ),
    Mutant(
        "a claim that another one holds is ended",
        "lua/includes/claims.lua",
        "elseif held ~= token then",
        "elseif false then",
        "transitions/test_fencing.py",
    ),
    Mutant(
        "a job that ended keeps its claim",
        "lua/includes/claims.lua",
        "  changes._claim_token = false\n  changes._rescues",
        "  changes._rescues",
        SUCCEED,
    ),
    Mutant(
        "a job that ended keeps its lease",
        "lua/includes/claims.lua",
        "send('ZREM', base .. ':_running', job.ident)",
        "",
        SUCCEED,
    ),
    Mutant(
        "a job is claimed though another one of its identifier is queued",
        "lua/includes/claim_next.lua",
        "if status ~= STATUSES.WAITING or is_second then",
        "if status ~= STATUSES.WAITING then",
        CLAIM,
    ),
    Mutant("a claimed job has no lease", "lua/includes/claim_next.lua", RUNNING, "", CLAIM),
    Mutant(
        "a rescued job is claimed together with others",
        "lua/includes/claim_next.lua",
        "if beside and (is_first or turn) and not allows(beside, number) then",
        "if false then",
        SUCCEED_MANY,
    ),
    Mutant(
        "the tries of a job are not counted",
        "lua/includes/claim_next.lua",
        "string.format('%d', (tonumber(tries_before) or 0) + 1)",
        "string.format('%d', (tonumber(tries_before) or 1))",
        CLAIM,
    ),
    Mutant(
        "the identifier of a success stays taken",
        "lua/includes/successes.lua",
        "status = STATUSES.SUCCESS, queued = false, start = start",
        "status = STATUSES.SUCCESS, start = start",
        SUCCEED,
    ),
    Mutant(
        "a job that was canceled while it ran is a success",
        "lua/includes/successes.lua",
        "if status == STATUSES.CANCELED then",
        "if false then",
        SUCCEED,
    ),
    Mutant(
        "a failed job runs once less",
        "lua/ending/fail.lua",
        "(tonumber(tries) or 0) <= requeue_times",
        "(tonumber(tries) or 0) < requeue_times",
        FAIL,
    ),
    Mutant(
        "cancel_on_error means nothing",
        "lua/ending/fail.lua",
        "local is_to_be_canceled = (cancel_on_error or '') ~= ''",
        "local is_to_be_canceled = false",
        FAIL,
    ),
    Mutant(
        "a failure is not listed among the errors",
        "lua/ending/fail.lua",
        "  redis.call('RPUSH', queue .. ':errors', job.ident)\n  local failure, unhandled",
        "  local failure, unhandled",
        FAIL,
    ),
    Mutant(
        "a canceled job is delayed",
        "lua/ending/delay.lua",
        "and claim_of(job).status == STATUSES.CANCELED then",
        "and false then",
        "transitions/test_delay.py",
    ),
    Mutant(
        "a released job keeps its try",
        "lua/claiming/release.lua",
        "tries = one_try_less(tries)",
        "tries = tries",
        RELEASE,
    ),
    Mutant(
        "a released job comes last",
        "lua/claiming/release.lua",
        "push(queue, job.ident, changes.status, due, not request.goes_last)",
        "push(queue, job.ident, changes.status, due, false)",
        RELEASE,
    ),
    Mutant(
        "a job is rescued once less",
        "lua/recovering/rescue.lua",
        "number > max_rescues",
        "number >= max_rescues",
        RESCUE,
    ),
    Mutant(
        "a rescued job waits twice",
        "lua/recovering/rescue.lua",
        "if not redis.call('LPOS', queue .. ':waiting', job.ident) then",
        "if true then",
        RESCUE,
    ),
    Mutant(
        "a job of another queue is rescued here",
        "lua/recovering/rescue.lua",
        "local is_here = hash and (queue_key or queue) == queue",
        "local is_here = hash",
        RESCUE,
    ),
    Mutant(
        "a claimed job becomes waiting when it is due",
        "lua/recovering/promote.lua",
        "if status == STATUSES.DELAYED and not token then",
        "if status == STATUSES.DELAYED then",
        PROMOTE,
    ),
    Mutant(
        "a job that became due stays delayed too",
        "lua/recovering/promote.lua",
        PROMOTED,
        "  done = done + 1\nend\n\nlocal function wake_safely",
        PROMOTE,
    ),
    Mutant(
        "a job that version 2 runs is canceled as if it waited",
        "lua/includes/canceling.lua",
        "if token or status == STATUSES.RUNNING then",
        "if token then",
        "transitions/test_cancel.py",
    ),
    Mutant(
        "a job that is queued again is pruned",
        "lua/recovering/prune.lua",
        "elseif queued == '1' or token then",
        "elseif false then",
        "transitions/test_prune.py",
    ),
    Mutant(
        "a job in the hands of a worker is put back",
        "lua/recovering/reconcile.lua",
        "is_queued and not claim_token",
        "is_queued",
        "transitions/test_reconcile.py",
    ),
    Mutant("a renewed lease is gone", "lua/includes/claims.lua", RENEWED, "", "transitions/test_renew.py"),
    Mutant(
        "a job is moved to a queue beside another one of its identifier",
        "lua/placing/move.lua",
        "local other = identifier and other_queued(job, identifier)",
        "local other = nil",
        "transitions/test_move.py",
    ),
    Mutant(
        "a schedule that was changed meanwhile makes a job",
        "lua/timed/enqueue_due.lua",
        "elseif next_run ~= request.next_run or trigger",
        "elseif trigger",
        "transitions/test_enqueue_due.py",
    ),
    Mutant(
        "a job that is not in error is requeued",
        "lua/includes/requeueing.lua",
        "elseif status ~= STATUSES.ERROR then",
        "elseif false then",
        "transitions/test_requeue.py",
    ),
    Mutant(
        "never_on of a retry policy means nothing",
        "retrying.py",
        "return names.isdisjoint(self.never_on) and (",
        "return (",
        "test_retrying.py",
    ),
    Mutant(
        "a worker runs a job more than it may",
        "workers/context.py",
        "if worker.num_loops >= worker.max_loops or",
        "if worker.num_loops > worker.max_loops or",
        "workers/test_run.py",
    ),
    Mutant(
        "a job without a queue is logged each time",
        "workers/maintenance/rescue.py",
        "new = [ident for ident in unplaceable if ident not in self._unplaceable]",
        "new = unplaceable",
        "workers/maintenance/test_reconciling.py",
    ),
    Mutant(
        "a schedule has no trigger",
        "schedules/triggers.py",
        "if len(given) != 1:",
        "if len(given) > 1:",
        "schedules/test_triggers.py",
    ),
    Mutant(
        "a bound is within a range",
        "search/conditions.py",
        'else f"({number!r}"',
        'else f"{number!r}"',
        "search/test_conditions.py search/test_filter.py models/test_range_indexes.py",
    ),
    Mutant(
        "an aware date keeps the hour of its zone",
        "dates.py",
        "return moment.astimezone(UTC).replace(tzinfo=None)",
        "return moment.replace(tzinfo=None)",
        "test_utils.py",
    ),
    Mutant(
        "a password of a database is shown",
        "redis/addresses.py",
        'r"\\1***@", text)',
        'r"\\g<0>", text)',
        "redis/test_database.py",
    ),
    Mutant(
        "a schedule runs though its time was missed long ago",
        "schedules/misfires.py",
        "if misfire_grace_time is None or now - time <= misfire_grace_time]",
        "]",
        "schedules/test_catching_up.py schedules/test_enqueuing.py",
    ),
    Mutant(
        "a page of another site reads what is served on loopback",
        "observing/responder.py",
        "if not ip_address(address).is_loopback:",
        "if True:",
        "observing/test_responder.py",
    ),
    Mutant(
        "secrets of the dashboard may be guessed without a wait",
        "contrib/web/access.py",
        "if len(recent) >= MAX_FAILURES:",
        "if False:",
        "contrib/web/test_web_security.py",
    ),
    Mutant(
        "the dashboard shows a field whose name says that it is secret",
        "contrib/web/masking.py",
        "return HIDDEN if self.is_secret(name) else self.text(value)",
        "return self.text(value)",
        "contrib/web/test_web_masking.py",
    ),
    Mutant(
        "two queued jobs of one identifier are sound",
        "check/places.py",
        "            self._rivals.add((path, identifier))",
        "            pass",
        "check/test_live.py",
    ),
    Mutant(
        "a queue that keeps no finished job keeps all of them",
        "models/pruning.py",
        "            if keep is not None\n        }",
        "            if keep\n        }",
        "workers/maintenance/test_pruning.py",
    ),
]


def main(names: list[str]) -> int:
    chosen = [each for each in MUTANTS if not names or any(name in each.file + each.tests for name in names)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        wrong = sum(tell(each, outcome) for each, outcome in zip(chosen, pool.map(outcome_of, chosen), strict=True))
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants are caught")
    return 1 if wrong or not chosen else 0


def outcome_of(mutant: Mutant) -> str:
    if not mutant.is_applicable:
        return "NOT APPLICABLE"
    return "caught" if mutant.is_caught() else "NOT CAUGHT"


def tell(mutant: Mutant, outcome: str) -> bool:
    """Print what became of a mutant, and return whether that is wrong."""
    print(f"{outcome:14}  {mutant.file:35}  {mutant.what} ({mutant.tests})", flush=True)
    return outcome != "caught"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
