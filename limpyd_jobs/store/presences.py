"""Who is there: kept up, and listed, in one step each."""

from __future__ import annotations

from collections.abc import Mapping

from limpyd.model import RedisModel

from limpyd_jobs.store.calls import Call, given, send
from limpyd_jobs.store.layout import layout_of
from limpyd_jobs.store.records import Reply, sender_of
from limpyd_jobs.store.scripting import Script

_keep_presence = Script("keep_presence")
_list_presences = Script("list_presences")

Model = type[RedisModel]


def keep(model: Model, pk: str, fields: Mapping[str, str], lease: float) -> tuple[str, str]:
    """Say that somebody is there for so many seconds; return the pk, and since when.

    Parameters
    ----------
    pk: str
        Empty the first time.
    """

    def read(reply: Reply) -> tuple[str, str]:
        return reply["pk"], reply.get("since", "")

    layout = layout_of(model)
    request = given(model=layout.json, pk=pk, lease=lease)
    keys = [layout.description["leases"]]
    return send(Call(sender_of(model), _keep_presence, request, read, [model], keys=keys, fields=fields))


def living(model: Model, kind: str = "") -> list[tuple[str, float, dict[str, str]]]:
    """Return the pk, the end, and the fields of those who are there, maybe only of a kind."""

    def read(reply: Reply) -> list[tuple[str, float, dict[str, str]]]:
        return [(pk, float(end), dict(zip(flat[::2], flat[1::2], strict=True))) for pk, end, flat in reply["records"]]

    layout = layout_of(model)
    keys = [layout.description["leases"]]
    request = given(model=layout.json, kind=kind)
    return send(Call(sender_of(model), _list_presences, request, read, [model], keys=keys))
