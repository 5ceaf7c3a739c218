"""The check looks at timed records as at any others."""

from __future__ import annotations

import pytest
import redis
from limpyd import fields
from limpyd.indexes import NumberRangeIndex
from looking import check

from limpyd_jobs import TimedRecord

DUE = "checked:chore:at:number-range"
BROKEN = {
    "one is not among those due": ("not indexed", f"ZREM {DUE} 7"),
    "one is due at another time": ("not indexed", f"ZADD {DUE} 13 7"),
    "one that is due does not exist": ("stale entry", f"ZADD {DUE} 13 gone"),
    "one has a lease that no index tells": ("not indexed", "SREM checked:chore:leased_by:ann 7"),
}


class Chore(TimedRecord):
    namespace = "checked"
    due_field = "at"
    at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    what = fields.InstanceHashField()


@pytest.fixture(autouse=True)
def _one_is_leased(redis_client: redis.Redis) -> None:
    Chore.make("7", {"at": 12})
    Chore.make("never", {"what": "nothing"})
    Chore.lease_due("ann")


def test_nothing_is_wrong_with_them() -> None:
    assert check(pause=0).findings == []


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_found_and_repaired(redis_client: redis.Redis, case: str) -> None:
    kind, command = BROKEN[case]
    redis_client.execute_command(*command.split())
    assert [found.kind for found in check(pause=0, repair=True).findings] == [kind]
    assert check(pause=0).findings == []
    assert redis_client.zrange(DUE, 0, -1, withscores=True) == [("7", 12)]


def test_one_without_any_value_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a field with a value"):
        Chore.make("empty", {"at": None})
