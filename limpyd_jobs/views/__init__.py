"""What is shown and done, as values: for the commands, the dashboard and Django's admin alike."""

from limpyd_jobs.dates import shown_span as shown_span
from limpyd_jobs.texts import count_of as count_of
from limpyd_jobs.views.changes import Change as Change
from limpyd_jobs.views.changes import filter_of_failed as filter_of_failed
from limpyd_jobs.views.changes import filter_of_job as filter_of_job
from limpyd_jobs.views.changes import filters_of_queued as filters_of_queued
from limpyd_jobs.views.documents import document as document
from limpyd_jobs.views.hints import unknown_names as unknown_names
from limpyd_jobs.views.merged import glance_of_all as glance_of_all
from limpyd_jobs.views.merged import levels_of_all as levels_of_all
from limpyd_jobs.views.merged import overview_of_all as overview_of_all
from limpyd_jobs.views.merged import periods_of_all as periods_of_all
from limpyd_jobs.views.merged import states_of_all as states_of_all
from limpyd_jobs.views.queues import QueueRow as QueueRow
from limpyd_jobs.views.queues import queue_rows as queue_rows
from limpyd_jobs.views.verbs import NAMES_OF_VERBS as NAMES_OF_VERBS
from limpyd_jobs.views.verbs import verbs_for as verbs_for
from limpyd_jobs.views.verbs import verbs_for_many as verbs_for_many
from limpyd_jobs.views.workers import ShownWorker as ShownWorker
from limpyd_jobs.views.workers import shown_workers as shown_workers
