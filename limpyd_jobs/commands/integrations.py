"""``limpyd-jobs integrations``: the records of integrations in Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from optparse import OptionParser
from typing import Any

from limpyd_jobs.check.catalogue import INTEGRATIONS, JOB_STORES
from limpyd_jobs.classes.imports import installed_only
from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import JSON, JSONL, READING_OPTIONS
from limpyd_jobs.dates import EPOCH
from limpyd_jobs.models import AlivePresence
from limpyd_jobs.models.explaining.silence import alive, silence_of_claim
from limpyd_jobs.query import quarantine_entries, queue_states
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line


def namespace(text: str) -> str:
    if not text:
        raise ValueError("a namespace must not be empty")
    return text


class Integrations(Command):
    """Exit status: 0; 2 if the command line is wrong, or the integration cannot be imported."""

    summary = "List the jobs that APScheduler has in its job store, or TaskFlow on its boards"
    words = "apscheduler|taskflow [options]"
    first_words = tuple(INTEGRATIONS)
    option_list = (
        *READING_OPTIONS,
        WorkerOption(
            "--namespace",
            check=namespace,
            help=f"apscheduler: of the job store (default: {' and '.join(JOB_STORES)})",
        ),
        JSON,
        JSONL,
    )

    def run(self) -> int:
        columns, found = self._boards() if self._integration() == "taskflow" else self._job_stores()
        rows = sorted(found, key=tuple)
        values = (dict(zip(map(_key, columns), row, strict=True)) for row in rows)
        self.print_list(values, columns, rows)
        return 0

    def _integration(self) -> str:
        known = " or ".join(INTEGRATIONS)
        if len(self.given) > 1:
            self.parser.error(f"one integration at a time: {known}")
        if not self.given or self.given[0] not in INTEGRATIONS:
            self.parser.error(f"name one of the integrations: {known}")
        return self.given[0]

    def _boards(self) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
        if self.options.namespace is not None:
            self.parser.error("--namespace is for apscheduler only: taskflow lists the postings of all boards")
        return _postings(model_of(self.parser, "taskflow"))

    def _job_stores(self) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
        asked = self.options.namespace
        if asked is not None:
            return _scheduled([job_store(self, asked)])
        model = model_of(self.parser, "apscheduler")
        return _scheduled([model.bound_to(model.database, each) for each in JOB_STORES])


def model_of(parser: OptionParser, integration: str) -> Any:
    """Return the model of an integration; end the command if it cannot be imported."""
    module, name, *_ = INTEGRATIONS[integration]
    try:
        with installed_only():
            return getattr(import_module(module), name)
    except ImportError as error:
        parser.error(f"{integration} is not installed: pip install 'redis-limpyd-jobs[{integration}]' ({error})")


def job_store(command: Command, namespace: str) -> Any:
    """Return the model of the jobs of APScheduler in a namespace; say so if there is none."""
    model = model_of(command.parser, "apscheduler")
    found = model.bound_to(model.database, namespace)
    if not len(found.collection()):
        command.note(f"there is no job of APScheduler in the namespace {one_line(namespace)}")
    return found


def _scheduled(models: Sequence[Any]) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    def rows() -> Iterator[Sequence[str]]:
        found = ((model, *row) for model in models for row in model.read_many(model.collection()))
        for model, pk, job in found:
            state = "parked" if job.get("parked") else "active" if job.get("next_run_time") else "paused"
            moment = _date(job.get("next_run_time") or job.get("parked_run_time"))
            told = (job.get(name, "") for name in ("func", "executor", "leased_by", "reason"))
            yield (moment, pk, model.namespace, state, *told)

    return ("next run (UTC)", "id", "namespace", "state", "function", "executor", "leased by", "reason"), rows()


def _postings(model: Any) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    def rows() -> Iterator[Sequence[str]]:
        boards = {state.pk: state.name for state in queue_states(queue_model=model.queue_model)}
        owners = {each.name: each for each in alive(model.database, model.namespace)}
        quarantine = {each.entry for each in quarantine_entries(queue_model=model.queue_model)}
        for pk, found in model.read_many(model.collection()):
            posting = model.lazy_connect(pk)
            status, owner = _status_and_owner(posting, found.get("status"), owners)
            status = "quarantined" if posting.ident in quarantine else status
            board = boards.get(found.get("_queue_key", "").rpartition(":")[2], "")
            moment, uuid, name = (found.get(each, "") for each in ("added", "identifier", "title"))
            yield moment, board, uuid, name, status, found.get("priority", ""), owner

    return ("posted (UTC)", "board", "uuid", "name", "status", "priority", "claimed by"), rows()


def _status_and_owner(posting: Any, status: str | None, owners: Mapping[str, AlivePresence]) -> tuple[str, str]:
    """Return the status of a posting as its board sees it, and who holds the claim, silent or not."""
    if status == STATUSES.RUNNING:
        claim = posting.claim_state()
        if claim.is_held:
            owner = owners.get(claim.owner or "")
            said = silence_of_claim(owner, claim.left or 0) if owner else ""
            return "running", f"{claim.owner}, {said}" if said else claim.owner or ""
        status = claim.status
    return "lapsed" if status == STATUSES.RUNNING else STATUSES.by_value(status, "?").lower(), ""


def _key(column: str) -> str:
    """Return the name of a column in JSON: next_run for next run (UTC)."""
    return column.removesuffix(" (UTC)").replace(" ", "_")


def _date(text: str | None) -> str:
    try:
        return str(EPOCH + timedelta(seconds=float(text or "nan")))
    except (ValueError, OverflowError):
        return text or ""
