"""Every change of a job's state, each one script and one round trip.

Each verb is a function. It takes models, queues and plain values, and returns what the worker or the model needs. The
refusal of a script becomes an exception. The scripts, with their arguments and replies, are the files of ``lua/``.
"""

# ruff: noqa: F401 (imported for others; mypy knows by `implicit_reexport`)

from limpyd_jobs.transitions.claiming import (
    LISTENING,
    MAX_KEPT,
    MAX_KEPT_TEXT,
    MAX_RENEWED,
    NOTHING,
    ONLY_TAKEN,
    UNCLAIMED,
    UNCLAIMED_LEASE,
    ClaimRequest,
    ClaimState,
    Delivery,
    NextWakeups,
    Renewal,
    Room,
    claim,
    claim_job,
    claim_state,
    claim_token,
    is_presumed,
    known_of,
    mark_of,
    owner_of,
    release,
    release_all,
    renew,
    renew_all,
    unregister,
    wait_and_claim,
)
from limpyd_jobs.transitions.editing import edit
from limpyd_jobs.transitions.ending import (
    Ending,
    KeptResult,
    SucceededRun,
    abandon,
    accept_success,
    delay,
    duration_between,
    fail,
    finish_canceled,
    is_erased_at_once,
    requeue,
    skip,
    status_and_claim,
    succeed,
    succeed_many,
)
from limpyd_jobs.transitions.flows import (
    MAKING_SECONDS,
    SpawnedBefore,
    add_flow,
    ask_children,
    ask_signal,
    cancel_flow,
    drop_flow,
    requeue_flow,
    running,
    send_signal,
    signal_flow,
    take_back_from_flow,
    take_back_signal,
    tend_flow,
    wake_spawner,
)
from limpyd_jobs.transitions.limits import rest, set_limit, settle
from limpyd_jobs.transitions.once import Once, adding_once, current_once
from limpyd_jobs.transitions.placing import (
    Standing,
    add,
    add_many,
    asking_for,
    await_copies,
    cancel,
    enqueue_due,
    move,
    spare_if_claimed,
)
from limpyd_jobs.transitions.pruning import PRUNE_LIMIT, Begun, Cleared, Pruning, check_prunable, clear, prune
from limpyd_jobs.transitions.recovering import (
    DEFERRAL_SECONDS,
    MAX_DEFERRALS,
    PROMOTE_LIMIT,
    RECONCILE_LIMIT,
    Promoted,
    Rescue,
    defer_unresolved,
    force_release,
    promote,
    reconcile,
    rescue,
    retry_deferred,
)
