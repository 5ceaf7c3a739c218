"""Finding out who asks. Secrets are compared in constant time. An address that sends many wrong ones has to wait, also
with a right one, or guessing would not be slowed; but not with one that it has sent before, because behind a proxy all
clients may have one address."""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from hmac import compare_digest
from inspect import isawaitable, iscoroutinefunction
from ipaddress import ip_address, ip_network
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from anyio import to_thread
from starlette.datastructures import Headers

from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.settings import Settings, is_local
from limpyd_jobs.contrib.web.users import ROLES, Role, User
from limpyd_jobs.integration import OncePer, one_line

log = logging.getLogger("limpyd-jobs.web")

K = TypeVar("K")
V = TypeVar("V")

# How many wrong secrets an address may try, in how many seconds; and how many addresses are remembered, and how many
# right secrets of addresses.
MAX_FAILURES, FAILURES_WITHIN, MAX_ADDRESSES = 10, 60.0, 10_000

# Once in how many seconds, at most, wrong secrets are logged.
LOGGED_EVERY = 1.0

# What a proxy adds: without authentication, the address of the client is then not that of a user of this machine.
FORWARDED = ("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip")
FORWARDED_IN_FRONT = "x-forwarded-"


class Throttle:
    """Refuses an address that tried too many wrong secrets."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def check(self, address: str, digest: bytes) -> None:
        """Raise `Refusal` if an address has to wait, and its secret was not right before."""
        recent = [] if (address, digest) in self._right else self._recent(address)
        if len(recent) >= MAX_FAILURES:
            wait = int(recent[0] + FAILURES_WITHIN - monotonic()) + 1
            raise Refusal(429, f"Too many wrong secrets: try again in {wait} s", {"Retry-After": f"{wait}"})

    def count_failure(self, address: str) -> None:
        _remember(self._failures, address, [*self._recent(address), monotonic()])

    def keep(self, address: str, digest: bytes) -> None:
        """Remember that a secret of an address is right."""
        _remember(self._right, (address, digest), None)

    def _recent(self, address: str) -> list[float]:
        return [at for at in self._failures.get(address, ()) if at > monotonic() - FAILURES_WITHIN]


def _remember(values: OrderedDict[K, V], key: K, value: V) -> None:
    values[key] = value
    values.move_to_end(key)
    while len(values) > MAX_ADDRESSES:
        values.popitem(last=False)


class _Secret(NamedTuple):
    digest: bytes
    user: User
    needs_name: bool  # whether the name in front of the password counts


class Access:
    """Names the user of a request, or refuses it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._secrets = [*_secrets(settings)]
        self._throttle = Throttle()
        self._may_log, self._unlogged = OncePer(LOGGED_EVERY), 0

    async def user_of(self, scope: Any) -> User:
        """Return who asks; raise `Refusal` if that is not known."""
        if not self._settings.is_guarded:
            return _local_user(scope)
        user = await self._named_by_application(scope)
        if user is None and self._secrets:
            user = self._by_secret(scope)
        if user is None:
            raise Refusal(403, "This user may not see the dashboard")
        return user

    async def _named_by_application(self, scope: Any) -> User | None:
        hook = self._settings.authenticate
        if hook is None:
            return None
        found = hook(scope) if iscoroutinefunction(hook) else await to_thread.run_sync(hook, scope)
        user = await found if isawaitable(found) else found
        if user is not None and not (isinstance(user, User) and user.name and user.role in ROLES):
            raise TypeError(f"authenticate must return a User with a name and a role, or None, not {one_line(user)}")
        return user

    def _by_secret(self, scope: Any) -> User:
        given = _credentials(Headers(scope=scope).get("authorization", ""))
        if given is None:
            raise Refusal(401, "Who are you? Give a token, or a name and a password", _CHALLENGE)
        name, secret = given
        digest = _digest(secret)
        found = None
        for each in self._secrets:  # all of them, whichever it is
            is_same = compare_digest(each.digest, digest)
            is_meant = not each.needs_name or compare_digest(_digest(each.user.name), _digest(name))
            found = each.user if is_same & is_meant else found
        address = _network_of(scope)
        self._throttle.check(address, digest)
        if found is None:
            self._throttle.count_failure(address)
            self._log_failure(address, name)
            raise Refusal(401, "That token or password is wrong", _CHALLENGE)
        self._throttle.keep(address, digest)
        return found

    def _log_failure(self, address: str, name: str) -> None:
        """Log a wrong secret, but not one after the other. A name is logged if a user has it: else it may be a secret
        that stands in the wrong place."""
        self._unlogged += 1
        if not self._may_log():
            return
        known = name if any(each.needs_name and each.user.name == name for each in self._secrets) else ""
        of = f" of {one_line(known)}" if known else ""
        others = f", and {self._unlogged - 1:,} more since the last such line" if self._unlogged > 1 else ""
        log.warning("Wrong token or password%s, from %s%s", of, one_line(address) or "an unknown address", others)
        self._unlogged = 0


_CHALLENGE = {"WWW-Authenticate": 'Basic realm="limpyd-jobs", charset="UTF-8"'}


def _secrets(settings: Settings) -> Iterator[_Secret]:
    if settings.token:
        yield _Secret(_digest(settings.token), User("token", Role.ADMIN.word), False)
    if settings.view_token:
        yield _Secret(_digest(settings.view_token), User("view token", Role.VIEW.word), False)
    for name, (password, role) in (settings.users or {}).items():
        yield _Secret(_digest(password), User(name, role), True)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()


def _credentials(header: str) -> tuple[str, str] | None:
    """Return the name and the secret of a header; None if it has none. A bearer has no name."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return "", rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return (name, secret) if colon else ("", "")


def _local_user(scope: Any) -> User:
    address = (scope.get("client") or ("", 0))[0]
    headers = Headers(scope=scope)
    # no browser, nor another client of today, asks by HTTP 1.0, but proxies do that add no header
    is_proxy = any(map(_tells_of_a_proxy, headers)) or scope.get("http_version") == "1.0"
    if not is_local(address) or is_proxy:
        raise Refusal(403, "Only this machine is answered, because no token, users or authenticate are set")
    return User("local", Role.ADMIN.word)


def _tells_of_a_proxy(name: str) -> bool:
    return name in FORWARDED or name.startswith(FORWARDED_IN_FRONT)


def _network_of(scope: Any) -> str:
    """Return the address of a client; of IPv6, the network that one client has."""
    address = (scope.get("client") or ("", 0))[0]
    try:
        parsed = ip_address(address)
    except ValueError:
        return str(address)
    return str(parsed if parsed.version == 4 else ip_network((parsed, 64), strict=False))
