"""The check, of the models of the library and their job classes: not of what other tests define elsewhere."""

from __future__ import annotations

from functools import partial

from limpyd_jobs import Error, Queue
from limpyd_jobs import check as checking

check = partial(checking.check, queue_models=[Queue], error_models=[Error])
