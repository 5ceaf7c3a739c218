"""The dashboard of the project: its settings, and who may do what there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.dashboard.bridge import Bridge, Response

try:
    from limpyd_jobs.contrib.web import User, application
except ModuleNotFoundError as error:
    raise ImproperlyConfigured(f"The dashboard needs the package {error.name}: the extra [web] brings it") from None

# The key of the scope with the user, whom Django knows.
USER = "limpyd_jobs.user"

# The permission of each role, the mightiest first. Superusers have all.
PERMISSIONS = {
    "admin": "limpyd_jobs.admin_jobs",
    "act": "limpyd_jobs.act_jobs",
    "view": "limpyd_jobs.view_jobs",
}


def user_of(user: Any) -> User | None:
    """Return the user as the dashboard knows it; None for whoever may not see it: it needs an active member of the
    staff, with one of the permissions."""
    if not (user.is_active and user.is_staff):
        return None
    role = next((role for role, permission in PERMISSIONS.items() if user.has_perm(permission)), None)
    return User(user.get_username(), role) if role else None


async def _authenticate(scope: Any) -> User | None:
    user: User | None = scope.get(USER)
    return user


def _application() -> Any:
    # Django knows by which names it may be asked for, and sees each request before
    return application(streams=False, hosts=["*"], authenticate=_authenticate, **settings.dashboard_settings())


_bridge = Bridge(_application)


class Request(NamedTuple):
    """What the dashboard is asked for. `path` is that of the address, also of where it is mounted, which is `root`."""

    path: str
    query: bytes = b""
    root: str = ""
    method: str = "GET"
    scheme: str = "http"
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


def ask(user: User, request: Request) -> Response:
    """Ask the dashboard as a user."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "query_string": request.query,
        "root_path": request.root,
        "headers": [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in request.headers],
        "client": None,
        "server": None,
        USER: user,
    }
    return _bridge.ask(scope, request.body)
