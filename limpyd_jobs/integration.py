"""What an integration may use beside what `limpyd_jobs` exports. Those in `limpyd_jobs.contrib` import nothing else."""

from limpyd_jobs import events
from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.classes.job_classes import imported_job_class
from limpyd_jobs.commandline.options import rate, time_span
from limpyd_jobs.commandline.programs import run_program
from limpyd_jobs.dates import parse_datetime, span
from limpyd_jobs.exceptions import GracePeriodOver, as_written
from limpyd_jobs.fields.codecs import codec_of
from limpyd_jobs.fields.forms import Form, register_form
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import Change, Changes, JobChange
from limpyd_jobs.models.claims.job_claim import held_by
from limpyd_jobs.models.job_record import job_modules
from limpyd_jobs.models.written.calls import read_call, write_call
from limpyd_jobs.observing.instruments import Adding, Instrument, Running
from limpyd_jobs.observing.worker_tasks import WorkerTask, register_worker_task
from limpyd_jobs.records.audit import acting_for
from limpyd_jobs.records.known_classes import masked_fields_of
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.responder import is_own_name
from limpyd_jobs.schedules.search_budget import SearchBudget
from limpyd_jobs.schedules.triggers import describe_trigger, trigger_of, zone_of
from limpyd_jobs.search.conditions import parse_moment
from limpyd_jobs.search.fingerprints import fingerprint_of
from limpyd_jobs.texts import OncePer, described, one_line, traceback_of
from limpyd_jobs.transitions import adding_once
from limpyd_jobs.workers.backoff import is_transient

__all__ = [
    "Adding",
    "Change",
    "Changes",
    "Form",
    "GracePeriodOver",
    "Ident",
    "Instrument",
    "JobChange",
    "JobsDatabase",
    "OncePer",
    "Running",
    "SearchBudget",
    "WorkerTask",
    "acting_for",
    "adding_once",
    "as_written",
    "codec_of",
    "describe_trigger",
    "described",
    "events",
    "fingerprint_of",
    "held_by",
    "imported_job_class",
    "is_of_wrong_type",
    "is_own_name",
    "is_transient",
    "job_modules",
    "masked_fields_of",
    "one_line",
    "parse_datetime",
    "parse_moment",
    "rate",
    "read_call",
    "register_form",
    "register_worker_task",
    "run_program",
    "span",
    "stored_queue_name",
    "time_span",
    "traceback_of",
    "trigger_of",
    "write_call",
    "zone_of",
]
