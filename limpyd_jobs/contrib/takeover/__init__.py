"""Taking over what waits in the queues of RQ or arq: ``limpyd-jobs takeover``.

`TakeOver` moves the jobs of `RQ` or `Arq`, one after the other. Wherever its process is killed, no job is lost, and
none is doubled, once it is called again: see ``taking.py``.
"""

from limpyd_jobs.contrib.takeover.arq import Arq
from limpyd_jobs.contrib.takeover.old_queues import Left, OldJob, OldQueues
from limpyd_jobs.contrib.takeover.rq import RQ
from limpyd_jobs.contrib.takeover.taking import Moved, TakeOver
from limpyd_jobs.contrib.takeover.targets import Destination, targets_of

__all__ = ["RQ", "Arq", "Destination", "Left", "Moved", "OldJob", "OldQueues", "TakeOver", "targets_of"]
