"""The tag with which all keys of a database on a cluster begin: so they are in one slot, on one server."""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import Any

SLOTS = 16384

# Lower case, because limpyd looks up related models by their names in lower case.
TAG = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")

# This key never exists. A script that declares it is refused as a whole while the slot moves.
GUARD = "limpyd-jobs:guard"

# The tags that this process uses. As long as there is none, nothing is asked about clusters.
used: set[str] = set()


def check_tag(tag: object) -> str:
    """Return a tag. Anything else is a `ValueError`."""
    if not isinstance(tag, str) or not TAG.fullmatch(tag):
        raise ValueError(
            "the name after the hosts begins all keys: it has up to 64 of a-z, 0-9, '_', '.', '-', and no braces, "
            "as redis+cluster://host:port/shop"
        )
    return tag


def prefix_of(tag: str) -> str:
    """Return what the keys of a tag begin with; nothing without a tag."""
    return f"{{{tag}}}:" if tag else ""


def without_tag(name: str) -> str:
    """Return the name of a model without the tag that it begins with on a cluster."""
    return name.partition("}:")[2] if name.startswith("{") else name


def prefix_at(connection: Any) -> str:
    """Return what all keys begin with in the database that a client, or anything else that has its pool, leads to."""
    prefix: str = getattr(connection.connection_pool, "prefix", "") if used else ""
    return prefix


def at(connection: Any, key: str) -> str:
    """Return a key that belongs to no model, as it is in the database of a connection."""
    return f"{prefix_at(connection)}{key}" if used else key


def slot_of(tag: str) -> int:
    """Return the slot of all keys with a tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS
