"""Visiting the site of the project, as a browser does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.test import AsyncClient, Client

HOST = "shop.example.com"

BROWSER = {
    "HTTP_HOST": HOST,
    "HTTP_ACCEPT": "text/html",
    "HTTP_SEC_FETCH_SITE": "same-origin",
    "HTTP_SEC_FETCH_MODE": "navigate",
    "HTTP_SEC_FETCH_DEST": "document",
}

HEADERS = {name.removeprefix("HTTP_").replace("_", "-").lower(): value for name, value in BROWSER.items()}
del HEADERS["host"]  # the client for ASGI always sends testserver


def make_user(name: str, *codenames: str, **attributes: Any) -> User:
    """Return a new member of the staff with some permissions of ours."""
    user = User.objects.create_user(name, **{"is_staff": True, **attributes})
    found = Permission.objects.filter(codename__in=codenames, content_type__app_label="limpyd_jobs")
    assert len(found) == len(codenames)
    user.user_permissions.set(found)
    return user


def visit_as(user: User | None, **headers: str) -> Client:
    """Return a browser, in which a user is signed in. It sends forms without Django's token, which that then checks."""
    client = Client(enforce_csrf_checks=True, **{**BROWSER, **headers})
    if user:
        client.force_login(user)
    return client


def visit_async_as(user: User) -> Callable[..., Any]:
    """Return the same for a server that speaks ASGI: ``ask("get", address)``."""
    client = AsyncClient()
    client.force_login(user)

    def ask(verb: str, address: str, **form: Any) -> Any:
        return async_to_sync(getattr(client, verb))(address, headers=HEADERS, **form)

    return ask
