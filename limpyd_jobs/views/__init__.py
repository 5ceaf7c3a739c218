"""What is shown and done, as values: for the commands, the dashboard and Django's admin alike."""

from limpyd_jobs.views.documents import document as document
from limpyd_jobs.views.workers import ShownWorker as ShownWorker
from limpyd_jobs.views.workers import shown_workers as shown_workers
