"""The view that hands requests over to the dashboard."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from limpyd_jobs.contrib.django.dashboard.site import Request, ask, user_of

# Each browser of today sends one of them with a form. They stand for Django's token, which our forms do not have.
ORIGINS = ("Sec-Fetch-Site", "Origin")


@csrf_exempt  # type: ignore[untyped-decorator]
def dashboard(request: HttpRequest, path: str = "") -> HttpResponse:
    """Answer as the dashboard does, for whom `user_of` lets in. Others are sent to the login of the admin."""
    user = getattr(request, "user", None)
    if user is None:
        raise ImproperlyConfigured("The dashboard needs django.contrib.auth.middleware.AuthenticationMiddleware")
    known = user_of(user)
    if known is None:
        return _refused(request)
    if request.method == "POST" and not any(name in request.headers for name in ORIGINS):
        raise PermissionDenied("A form must say from which site it comes: Sec-Fetch-Site or Origin")
    body = request.body if request.method == "POST" else b""
    dropped = ("host", "content-length")
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in dropped]
    asked = Request(
        request.path,
        request.META.get("QUERY_STRING", "").encode("latin-1", "replace"),
        root=request.path[: len(request.path) - len(path)].rstrip("/"),
        method=request.method or "GET",
        scheme=request.scheme or "http",
        headers=[*headers, ("host", request.get_host()), ("content-length", str(len(body)))],
        body=body,
    )
    answer = ask(known, asked)
    response = HttpResponse(answer.content, status=answer.status)
    for name, value in answer.headers:
        response[name] = value
    return response


def _refused(request: HttpRequest) -> HttpResponse:
    """Send whoever opens a page to the login; refuse what a page or a program asks for."""
    is_page = "text/html" in request.headers.get("Accept", "") and "HX-Request" not in request.headers
    if request.user.is_active and request.user.is_staff:
        raise PermissionDenied("This user has none of the permissions view_jobs, act_jobs and admin_jobs")
    if not is_page:
        return HttpResponse("Sign in first\n", status=403, content_type="text/plain; charset=utf-8")
    return redirect_to_login(request.get_full_path(), _login())


def _login() -> str:
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return str(settings.LOGIN_URL)
