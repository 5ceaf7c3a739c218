"""An audit that cannot be read is not shown as an empty one."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs.query import audit_entries, why_no_audit
from limpyd_jobs.records.audit import KEY


@pytest.mark.usefixtures("redis_client")
def test_why_it_cannot_be_read_is_said(redis_client: redis.Redis) -> None:
    assert why_no_audit() == ""
    redis_client.lpush(KEY, "x")
    assert audit_entries() == []
    assert why_no_audit() == f"the audit cannot be read: {KEY} is a list, not a stream"
