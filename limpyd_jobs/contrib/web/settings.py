"""The settings of the dashboard. Each wrong one is refused, with one line that says what it must be."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any

from limpyd_jobs import ConfigurationException
from limpyd_jobs.contrib.web.users import ROLES, User
from limpyd_jobs.integration import JobsDatabase, one_line
from limpyd_jobs.shards import Shards

# A function of an application that is given the ASGI scope of a request, and returns who asks; None to refuse.
Authenticate = Callable[[Any], "User | Awaitable[User | None] | None"]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")

# The shortest token or password: 16 characters cannot be guessed, however many are tried in a second.
MIN_TOKEN = 16

# Names the environment, as production, if no setting does. It stands in the header and in the title of each page.
ENVIRONMENT = "LIMPYD_JOBS_ENVIRONMENT"

# The colours of an environment, and the beginnings of names that have one without naming it. Others are olive.
COLOURS = {"magenta": ("prod", "live"), "grey": ("local", "dev"), "olive": ()}

# A host name, or an address, without a port; or any.
_HOST = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\]")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of `application`, which describes them."""

    database: JobsDatabase | None = None
    shards: Shards | None = None
    token: str | None = None
    view_token: str | None = None
    users: Mapping[str, tuple[str, str]] | None = None
    authenticate: Authenticate | None = None
    hosts: Sequence[str] = LOCAL_HOSTS
    read_only: bool = False
    masked: Sequence[str] = ()
    title: str = "limpyd jobs"
    environment: str = ""
    threads: int = 8
    streams: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Return the given settings, checked."""
        names = {each.name for each in fields(cls)}
        unknown = min(given.keys() - names, default=None)
        if unknown is not None:
            near = get_close_matches(unknown, names, n=1)
            meant = f"is {near[0]} meant?" if near else f"there are: {', '.join(sorted(names))}"
            raise ConfigurationException(f"{unknown!r} is not a setting of the dashboard: {meant}")
        given = {"environment": os.environ.get(ENVIRONMENT), **given}
        checked = {name: _CHECKS[name](name, value) for name, value in given.items() if value is not None}
        settings = cls(**checked)
        if settings.database and settings.shards:
            raise ConfigurationException("database and shards do not go together")
        foreign = [host for host in settings.hosts if not is_local(host)]
        if foreign and not settings.is_guarded:
            raise ConfigurationException(
                f"hosts: others can reach {foreign[0]!r}, so give a token, users, or authenticate, which names users"
            )
        return settings

    def of_shards(self) -> Iterator[Settings]:
        """Yield the settings of the dashboard of each shard."""
        databases = self.shards.databases if self.shards else ()
        for number, database in enumerate(databases):
            yield replace(self, database=database, shards=None, title=f"{self.title}, shard {number}")

    @property
    def is_guarded(self) -> bool:
        """Whether it asks who it is. Without that, only this machine is answered."""
        return bool(self.token or self.view_token or self.users or self.authenticate)

    @property
    def environment_name(self) -> str:
        """The name of the environment; empty if it has none."""
        return self.environment.partition(":")[0]

    @property
    def environment_colour(self) -> str:
        """One of `COLOURS`: the one that is named behind a colon, or that of the name."""
        name, _, colour = self.environment.partition(":")
        return colour or ("grey" if not name else _colour_of(name.lower()))


def _colour_of(environment: str) -> str:
    return next((colour for colour, names in COLOURS.items() if environment.startswith(names or "?")), "olive")


def is_local(host: str) -> bool:
    """Return whether a name or an address, without a port, leads to this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(name: str, needed: str, value: object) -> ConfigurationException:
    return ConfigurationException(f"{name} must be {needed}, not {one_line(repr(value))}")


def _database(name: str, value: Any) -> JobsDatabase:
    if not isinstance(value, JobsDatabase):
        raise _refused(name, "a JobsDatabase, as JobsDatabase(url=…)", value)
    return value


def _shards(name: str, value: Any) -> Shards:
    if not isinstance(value, Shards):
        raise _refused(name, "Shards, as Shards([JobsDatabase(url=…), …])", value)
    return value


def _token(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(name, "a text", type(value).__name__)  # not the value: it may be a secret
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ConfigurationException(f"{name} must have ASCII letters, digits and signs only, and no spaces")
    if len(value) < MIN_TOKEN:
        raise ConfigurationException(
            f"{name} must have {MIN_TOKEN} characters or more, not {len(value)}: "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        )
    return value


def _users(name: str, value: Any) -> Mapping[str, tuple[str, str]]:
    if not isinstance(value, Mapping):
        raise _refused(name, "a dict, as {'ann': (password, 'act')}", type(value).__name__)
    users = {}
    for user, row in value.items():
        if not (isinstance(user, str) and user.isprintable() and user and ":" not in user):
            raise _refused(name, "a dict whose keys are names without ':'", user)
        if not (isinstance(row, (tuple, list)) and len(row) == 2 and row[1] in ROLES):
            raise ConfigurationException(f"{name}: {user} must have a password and a role: {', '.join(ROLES)}")
        users[user] = (_token(f"{name}: the password of {user}", row[0]), row[1])
    if not users:  # which is not the same as none: whoever names users lets in no others
        raise ConfigurationException(f"{name} must have one user or more")
    return users


def _function(name: str, value: Any) -> Any:
    if not callable(value):
        raise _refused(name, "a function that is given the ASGI scope, and returns a User or None", value)
    return value


def _hosts(name: str, value: Any) -> Sequence[str]:
    hosts = [host.lower() for host in _texts(name, value)]
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise _refused(name, "host names or addresses without a port, as jobs.example.com or [::1]", host)
    if not hosts:
        raise _refused(name, "one host name or more", value)
    return (*hosts,)


def _texts(name: str, value: Any) -> Sequence[str]:
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    found = [*value] if is_list else []
    if not is_list or not all(isinstance(each, str) and each for each in found):
        raise _refused(name, "a list of texts", value)
    return (*found,)


def _bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refused(name, "True or False", value)
    return value


def _title(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value.strip() and len(value) <= 100):
        raise _refused(name, "a text of 1 to 100 characters", value)
    return value


def _environment(name: str, value: Any) -> str:
    """Read a name, and maybe a colour behind a colon. An empty variable is none."""
    if not isinstance(value, str) or len(value) > 60:
        raise _refused(name, "a text of at most 60 characters, as production", value)
    shown, colon, colour = value.strip().partition(":")
    if colon and colour not in COLOURS:
        raise _refused(name, f"a name, and maybe a colour ({', '.join(COLOURS)}), as production:magenta", value)
    return f"{one_line(shown)}{colon}{colour}"


def _threads(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise _refused(name, "a number from 1 to 100", value)
    return value


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "database": _database,
    "shards": _shards,
    "token": _token,
    "view_token": _token,
    "users": _users,
    "authenticate": _function,
    "hosts": _hosts,
    "read_only": _bool,
    "masked": _texts,
    "title": _title,
    "environment": _environment,
    "threads": _threads,
    "streams": _bool,
}
