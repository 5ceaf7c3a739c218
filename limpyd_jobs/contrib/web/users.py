"""The users who ask, and what they may do."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """What a user may do. Each role may do what those before it may."""

    VIEW = 1  # look at everything that is not masked
    ACT = 2  # change jobs, pause queues, quiet workers
    ADMIN = 3  # delete jobs and queues, stop workers, change schedules, repair

    @property
    def word(self) -> str:
        """The name of the role in settings: ``view``, ``act`` or ``admin``."""
        return self.name.lower()


ROLES = {role.word: role for role in Role}


class User(NamedTuple):
    """A user of the dashboard.

    Attributes
    ----------
    name: str
        Written to the audit with what the user does.
    role: str
        ``view``, ``act`` or ``admin``.
    """

    name: str
    role: str = "view"

    def may(self, role: Role) -> bool:
        """Return whether the user may do what needs a role."""
        return ROLES[self.role] >= role
