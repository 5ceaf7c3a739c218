"""The metrics of all workers, as Prometheus reads them."""

from __future__ import annotations

from limpyd_jobs.contrib.web.protocol import Asked, Page, Raw
from limpyd_jobs.contrib.web.refusals import Refusal


def show(asked: Asked) -> Raw:
    try:
        from limpyd_jobs.contrib.prometheus import exposition
    except ImportError:
        raise Refusal(501, "For metrics, install the extra: pip install 'redis-limpyd-jobs[prometheus]'") from None
    found = exposition(asked.database)
    return Raw(found.content, found.kind)


PAGE = Page("/metrics", "Metrics", show, lane="records")
