"""The application: routes made of pages and acts, and how a handler is called."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, Mount, Route, compile_path

from limpyd_jobs.contrib.web.access import Access
from limpyd_jobs.contrib.web.guard import HEALTH, NONCE, SAFE, USER, Guard
from limpyd_jobs.contrib.web.kept import Costly, Kept, Recent
from limpyd_jobs.contrib.web.live import Live, To
from limpyd_jobs.contrib.web.masking import Masking
from limpyd_jobs.contrib.web.pages import PAGES
from limpyd_jobs.contrib.web.pages.job import PAGE as PAGE_OF_JOB
from limpyd_jobs.contrib.web.pages.output import OutputOfJobs
from limpyd_jobs.contrib.web.pages.overview import OverviewShown, Trouble, overview_of, span_of
from limpyd_jobs.contrib.web.pages.shards import PAGES_OF_ALL
from limpyd_jobs.contrib.web.pictures.looks import Looks
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan, Raw
from limpyd_jobs.contrib.web.refusals import Refusal, refusal_of
from limpyd_jobs.contrib.web.rendering import address, as_json, render
from limpyd_jobs.contrib.web.settings import Settings
from limpyd_jobs.contrib.web.statics import static_file
from limpyd_jobs.contrib.web.tasks import Task, Tasks
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import acting_for, asking_once, one_line
from limpyd_jobs.query import Tally, masked_fields, ping

log = logging.getLogger("limpyd-jobs.web")

T = TypeVar("T")

# For how many seconds a request waits for the end of an act, before it shows its progress.
WAIT_FOR_ACT = 0.5

# How many acts are counted at once: that may take seconds, in which pages are shown by other threads.
MAX_COUNTS = 2

# Up to how many records a grave act is confirmed without typing their number.
MAX_UNTYPED = 100

# For how many seconds an answer about health is given again, whoever asks.
HEALTH_FOR = 1.0

# The key of the scope with the request as handlers see it, once it is known who asks.
ASKED = "limpyd_jobs.asked"


def application(**settings: Any) -> Starlette:
    """Return the dashboard, an ASGI application, to be served or mounted.

    >>> from limpyd_jobs.contrib.web import application
    >>> app = application(token="…", hosts=["jobs.example.com"])

    Without `token`, `view_token`, `users` or `authenticate`, only requests of this machine are answered.

    Parameters
    ----------
    database: JobsDatabase
        That of `BaseJobsModel` by default. Give another one for connections of its own: each thread uses one.
    shards: Shards
        Several databases, instead. The overview is that of all. Below ``/0/``, ``/1/``… there is a dashboard of each.
    token: str
        A secret of 16 characters or more, as a bearer token or as the password of basic authentication: for the role
        ``admin``.
    view_token: str
        The same, for the role ``view``: for Prometheus, for example.
    users: dict of str to tuple of str and str
        A password and a role for each name: ``{"ann": ("…", "act")}``.
    authenticate: callable
        A function, or a coroutine function, that is given the ASGI scope of a request and returns a `User`, or None for
        others. A function is called in a thread.
    hosts: list of str
        The names by which it is asked for, without ports: ``jobs.example.com``, ``*.example.com``. ``localhost``,
        ``127.0.0.1`` and ``[::1]`` by default. ``*`` is any name: only where the application around it checks names.
    read_only: bool
        True to let no user change anything.
    masked: list of str
        Names of more fields whose values are secret: ``account``, or ``shop.jobs.Pay.account``.
    title: str
        Of the dashboard, in the window of the browser.
    environment: str
        Its name, as ``production``, and maybe its colour behind a colon: ``magenta``, ``olive`` or ``grey``. By default
        what the environment variable ``LIMPYD_JOBS_ENVIRONMENT`` has.
    threads: int
        How many handlers run at once, 8 by default.
    streams: bool
        Whether pages get news by a stream, or ask for them every few seconds. By default they ask where the dashboard
        is mounted, because servers do not end as long as a stream is open; and under WSGI, where each stream would hold
        a thread of the server.

    Raises
    ------
    ConfigurationException
        If there is no such setting, or it has no such value.
    """
    site = Site(Settings.of(settings))
    app = Starlette(
        routes=[
            *(Mount(f"/{number}", routes=_routes_of(each)) for number, each in enumerate(site.of_shards)),
            *_routes_of(site),
        ],
        middleware=[Middleware(Guard, hosts=site.settings.hosts)],
        exception_handlers={HTTPException: site.missing},
        lifespan=site.lifespan,
    )
    app.router.redirect_slashes = False  # it would lead to whatever host is asked for
    app.state.end = site.end
    return app


def _routes_of(site: Site) -> list[Route]:
    return [
        Route("/static/{name:path}", static_file, methods=["GET"]),
        Route(HEALTH, site.health, methods=["GET"]),
        Route("/live", site.live, methods=["GET"]),
        *([] if site.settings.shards else [Route("/output/{ident:path}", site.output, methods=["GET"])]),
        *(Route(act.path, partial(site.act, page, act), methods=["POST"]) for page in site.pages for act in page.acts),
        *(Route(page.path, partial(site.show, page), methods=["GET"]) for page in site.pages),
    ]


@dataclass(frozen=True)
class Shown:
    """An act to confirm: nothing is done yet. If `is_exact` is false, there was no time to count all."""

    title: str
    outcome: Any
    danger: str
    is_exact: bool = True
    confirmed: bool = False
    button: str = "Do it"
    is_grave: bool = False
    to_type: int = 0  # the number that has to be typed; 0 for none
    parts: Mapping[str, int] = field(default_factory=dict)  # how many of each queue
    stays: str = ""


class Site:
    """One dashboard: its settings, and what its handlers share. That of several shards has one of each.

    Parameters
    ----------
    settings: Settings
    access: Access
        Of a dashboard of one shard: that of the one of all.
    """

    def __init__(self, settings: Settings, access: Access | None = None) -> None:
        self.settings = settings
        self.pages = PAGES_OF_ALL if settings.shards else PAGES
        self._is_of_one = access is not None
        self.tasks = Tasks()
        self.kept = Kept()
        self._costly = Costly()
        self._access = access or Access(settings)  # wrong secrets count together
        self._limiter = CapacityLimiter(settings.threads)
        self._lanes = {page.lane: lane_of(page.lane, settings.threads) for page in PAGES}
        self._count_limiter = CapacityLimiter(MAX_COUNTS)
        self._health, self._health_limiter = Recent(self._answers, HEALTH_FOR), CapacityLimiter(1)
        self.looks = Looks(settings)
        self._overview = Live(partial(overview_of, self.looks), self._in_thread)
        self._output = OutputOfJobs(self._in_thread)
        self.of_shards = [Site(each, self._access) for each in settings.of_shards()]

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self.end()

    def end(self) -> None:
        """End all streams, and all acts with their present step."""
        self._overview.end()
        self._output.end()
        self.tasks.stop()
        for each in self.of_shards:
            each.end()

    async def show(self, page: Page, request: Request) -> Response:
        """Answer with a page."""
        return await self._answer(request, partial(self._show, page))

    async def act(self, page: Page, act: Act, request: Request) -> Response:
        """Do what a form of a page asks for, or let the user confirm it."""
        return await self._answer(request, partial(self._act, page, act))

    async def missing(self, request: Request, error: Exception) -> Response:
        """Answer a request for a page that there is not."""

        async def refuse(request: Request) -> Response:
            status = getattr(error, "status_code", 404)
            if status == 404 and request.method in SAFE and (place := _with_other_end(request)):
                return RedirectResponse(place)
            with suppress(Refusal):
                await self._asked(request)  # then the page has the navigation
            raise Refusal(status, "There is no such page" if status == 404 else "That cannot be asked for so")

        return await self._answer(request, refuse)

    async def health(self, _: Request) -> Response:
        """Say only whether Redis answers. Whoever asks, it is asked once a second, in a thread of its own."""
        is_ok = await to_thread.run_sync(self._health, limiter=self._health_limiter)
        return PlainTextResponse("ok\n" if is_ok else "not ok\n", 200 if is_ok else 503)

    def _answers(self) -> bool:
        try:
            if self.settings.shards:
                return bool(self.settings.shards.each(ping).value)
            ping(self.settings.database)
        except Exception:  # whatever keeps Redis from an answer
            return False
        return True

    async def live(self, request: Request) -> Response:
        """Send the live part of the overview again and again; or once, if streams hold threads."""
        return await self._answer(request, self._live)

    async def _live(self, request: Request) -> Response:
        asked = await self._asked(request)
        asked.check(Role.VIEW)
        to = To(_root_of(request), asked.may(Role.ACT) and not self.settings.shards, span_of(asked))
        is_short = asked.polls or request.method == "HEAD"
        return await (self._overview.once(to) if is_short else self._overview.stream(to))

    async def output(self, request: Request) -> Response:
        """Send the output of a job as it comes; or what there is, if streams hold threads."""
        return await self._answer(request, self._output_of)

    async def _output_of(self, request: Request) -> Response:
        asked = await self._asked(request)
        asked.check(PAGE_OF_JOB.role)
        is_short = asked.polls or request.method == "HEAD"
        return await self._output.answer(asked, request.headers.get("last-event-id", ""), is_short=is_short)

    async def _answer(self, request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal.status == 500:
                log.exception("%s %s failed", request.method, one_line(request.url.path))
            return self._refused(request, refusal)

    async def _show(self, page: Page, request: Request) -> Response:
        asked = await self._asked(request)
        asked.check(page.role)
        problem, status = "", 200
        try:
            async with self._lanes[page.lane]:
                value = await self._in_thread(partial(_looking, asked, page))
        except Exception as error:
            refusal = refusal_of(error)
            if page.empty is None or refusal.status >= 500 or wants_json(request):
                raise
            value, problem, status = page.empty(asked), refusal.text, refusal.status
        if isinstance(value, Raw):
            return Response(value.content, media_type=value.kind)
        trouble = Trouble() if wants_json(request) else await self._trouble_of(value)
        return self._rendered(
            request, asked, page.template, page.title, value, status, problem=problem, trouble=trouble
        )

    async def _trouble_of(self, value: Any) -> Trouble:
        return value.trouble if isinstance(value, OverviewShown) else await self._overview.trouble()

    async def _act(self, page: Page, act: Act, request: Request) -> Response:
        asked = await self._asked(request)
        asked.check(act.role)
        form = (await _form_of(request)).as_counted()
        try:
            async with self._lanes[page.lane]:
                plan = await self._in_thread(partial(_acting, asked, partial(act.prepare, asked, form)))
            is_typed = form.is_typed
            if plan.count and not (form.get("confirmed") and is_typed):
                would, parts = await to_thread.run_sync(partial(_counted, plan), limiter=self._count_limiter)
                problem = "" if is_typed else f"That is not the number: it is {form.get('counted')}"
                return self._rendered(
                    request,
                    asked,
                    "confirm.html",
                    plan.title,
                    _shown(plan, would, parts),
                    problem=problem,
                    plan=plan,
                    pairs=form.as_kept(),
                )
        except Exception as error:
            return await self._shown_again(request, asked, page, form, error)
        lane = "short" if plan.is_short else "look" if act.role is Role.VIEW else "long"
        lane = "follow" if plan.follows else lane
        self._costly.clear()
        task = self.tasks.begin(plan.title, asked.user, plan.back, plan.do, lane)
        with anyio.move_on_after(WAIT_FOR_ACT):
            while not task.is_over:
                await anyio.sleep(0.01)
        return self._begun(request, plan, task)

    async def _shown_again(self, request: Request, asked: Asked, page: Page, form: Form, error: Exception) -> Response:
        """Show the page on which a form stands, with what was typed, and why it is refused."""
        refusal = refusal_of(error)
        if wants_json(request) or refusal.status >= 500:
            raise error
        page, asked = self._page_of_form(request, asked, page, form)
        try:
            async with self._lanes[page.lane]:
                value = await self._in_thread(partial(_looking, asked, page))
        except Exception:
            raise error from None
        more = {"problem": refusal.text, "typed": form}
        return self._rendered(request, asked, page.template, page.title, value, refusal.status, **more)

    def _page_of_form(self, request: Request, asked: Asked, page: Page, form: Form) -> tuple[Page, Asked]:
        """Return the page from which a form came, as far as the browser says so; else that of the act."""
        found = urlsplit(request.headers.get("referer", ""))
        path = unquote(found.path).removeprefix(request.scope.get("root_path", ""))
        query = Form.parse(found.query)
        for each in self.pages:
            match = _matched(each.path, path) if each.template else None
            if match is not None:
                return each, replace(asked, path=match, query=Form(query.without("done")))
        return page, replace(asked, query=Form([pair for pair in form.pairs if pair[0] == "q"]))

    def _begun(self, request: Request, plan: Plan, task: Task) -> Response:
        root = _root_of(request)
        progress = root + address(f"/requeues/{plan.follows}" if plan.follows else f"/tasks/{task.pk}")
        if wants_json(request):
            status = 202 if not task.is_over else 200 if not task.error else 409
            outcome = task.tally or task.text or None
            value = {"title": task.title, "outcome": outcome, "error": task.error or None, "confirmed": True}
            return _json({**value, "progress": progress}, status)
        if not task.is_over or (plan.follows and task.tally and task.tally.done):
            return RedirectResponse(progress, 303)
        mark = "&" if "?" in plan.back else "?"
        return RedirectResponse(f"{root}{plan.back}{mark}done={task.pk}", 303)

    async def _asked(self, request: Request) -> Asked:
        user = await self._access.user_of(request.scope)
        request.scope[USER] = user.name
        query = Form.parse(request.scope.get("query_string", b"").decode("latin-1"))
        polls = not self.settings.streams if self.settings.streams is not None else _is_below_another(request.scope)
        masking = Masking(self.settings.masked, partial(masked_fields, self.settings.database))
        asked = Asked(
            *(user, request.path_params, query, self.settings, masking, self.tasks, self.kept, self.looks, polls),
            costly=self._costly,
            is_again="hx-request" in request.headers,
        )
        request.scope[ASKED] = asked
        return asked

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await to_thread.run_sync(function, limiter=self._limiter)

    def _rendered(
        self,
        request: Request,
        asked: Asked | None,
        template: str,
        title: str,
        value: Any,
        status: int = 200,
        **more: Any,
    ) -> Response:
        if wants_json(request):
            return _json(value, status)
        done = asked and self.tasks.get(asked.query.get("done"))
        root = _root_of(request)
        html = render(
            template,
            root,
            **{"problem": "", "typed": Form([]), "trouble": Trouble(), **more},
            environment=self.settings.environment_name,
            colour=self.settings.environment_colour,
            it=value,
            title=title,
            site=self.settings.title,
            asked=asked,
            nonce=request.scope[NONCE],
            pages=self.pages if asked else (),
            above=f"{root.rpartition('/')[0]}/" if self._is_of_one else "",
            here_again=_again(request, root),
            here=request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/",
            done=done,
        )
        return Response(html, status, {"Vary": "Accept"}, "text/html; charset=utf-8")

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        value = {"error": refusal.text, "status": refusal.status}
        asked = request.scope.get(ASKED)
        response = self._rendered(request, asked, "refused.html", refusal.title, value, refusal.status)
        response.headers.update(refusal.headers)
        return response


def lane_of(lane: str, threads: int) -> CapacityLimiter:
    """Return what bounds the pages of a lane: all lanes together leave threads for pages that are shown at once."""
    return CapacityLimiter(max(1, threads // 4) if lane else inf)


def _counted(plan: Plan) -> tuple[Any, Mapping[str, int]]:
    """Count what a plan would do; and, if that is all that is found, how many of these each queue has."""
    would = plan.count() if plan.count else ""
    parts = plan.parts() if plan.parts and isinstance(would, Tally) and would.is_exact else {}
    return would, parts if isinstance(would, Tally) and sum(parts.values()) == would.done else {}


def _shown(plan: Plan, would: Any, parts: Mapping[str, int]) -> Shown:
    """Return what a plan would do, to be confirmed."""
    is_exact = not isinstance(would, Tally) or would.is_exact
    to_type = would.done if plan.is_grave and isinstance(would, Tally) and would.done > MAX_UNTYPED else 0
    return Shown(
        plan.title, would, plan.danger, is_exact, False, plan.button(would), plan.is_grave, to_type, parts, plan.stays
    )


def _matched(pattern: str, path: str) -> Mapping[str, str] | None:
    """Return the parameters that a path has for a page; None if it is that of another page."""
    match = compile_path(pattern)[0].match(path)
    return match and match.groupdict()


def _looking(asked: Asked, page: Page) -> Any:
    with asking_once():
        return page.show(asked)


def _acting(asked: Asked, prepare: Callable[[], Plan]) -> Plan:
    with acting_for(asked.user.name), asking_once():
        return prepare()


def wants_json(request: Request) -> bool:
    """Return whether whoever asks is a program."""
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _json(value: Any, status: int = 200) -> Response:
    return Response(as_json(value), status, {"Vary": "Accept"}, "application/json")


async def _form_of(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        body = (await request.body()).decode(errors="replace")
    except ClientDisconnect:  # there is no one to answer
        raise Refusal(400, "The request ended before all of it was there") from None
    if kind == "application/json":
        return Form(_pairs_of(body))
    if kind in ("application/x-www-form-urlencoded", ""):
        return Form.parse(body)
    raise Refusal(415, "Send a form, as application/x-www-form-urlencoded, or JSON")


def _pairs_of(body: str) -> list[tuple[str, str]]:
    """Return the values of a JSON object: texts, numbers, true, which is 1, and lists of these. False is nothing."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refusal(400, "The JSON must be an object")
    if re.search("[\ud800-\udfff]", "".join(map(str, [*found, *found.values()]))):
        raise Refusal(400, "The JSON has half a character, as \\ud800")
    return [
        (name, value if isinstance(value, str) else "1" if value is True else json.dumps(value))
        for name, values in found.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None and value is not False
    ]


def _root_of(request: Request) -> str:
    """Return where the dashboard is mounted, as it stands in addresses: empty, or ``/jobs``."""
    root = request.scope.get("root_path", "").strip("/")
    return quote(f"/{root}") if root else ""  # two slashes would be the beginning of another host


def _again(request: Request, root: str) -> str:
    """Return the address of a page that asks for itself again, without what was done before."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
    query = request.scope.get("query_string", b"").decode("latin-1")
    try:
        pairs = Form.parse(query).without("done")
    except Refusal:
        pairs = []
    return root + address(path, pairs)


def _with_other_end(request: Request) -> str:
    """Return the address of the page with a slash at its end, or without one; empty if there is none either. It is on
    this host, whatever name that was asked by."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    other = f"/{path.strip('/')}{'' if path.endswith('/') else '/'}"
    scope = {**request.scope, "path": request.scope.get("root_path", "") + other}
    if other == "/" or not any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
        return ""
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{_root_of(request)}{quote(other)}{'?' if query else ''}{query}"


def _is_below_another(scope: Mapping[str, Any]) -> bool:
    """Return whether the dashboard is mounted, so that it does not learn when the server wants to end; or whether
    a2wsgi, or another bridge from WSGI, is in between."""
    is_wsgi = "wsgi_environ" in scope or scope.get("asgi", {}).get("spec_version") == "wsgi"
    return is_wsgi or bool(scope.get("root_path"))
