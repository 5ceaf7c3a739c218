"""Requests that are refused, with one line that says why."""

from __future__ import annotations

from collections.abc import Mapping

from redis.exceptions import RedisError

from limpyd_jobs import LimpydJobsException, NotAudited
from limpyd_jobs.integration import as_written, described, is_of_wrong_type, one_line

MAX_MESSAGE = 2_000

# What pages are called that only say why.
_TITLES = {
    400: "This cannot be read",
    401: "Who is there?",
    403: "Not allowed",
    404: "Not found",
    409: "Not possible",
    413: "Too much at once",
    414: "Too long",
}


class Refusal(Exception):
    """A request is refused.

    Attributes
    ----------
    status: int
        Of HTTP.
    text: str
        One line: what happened, and what to do.
    headers: mapping of str to str
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, dict(headers or {})

    @property
    def title(self) -> str:
        """What the page is called that says so."""
        return _TITLES.get(self.status, "Refused" if self.status < 500 else "Not possible now")


def told_of(error: Exception) -> str:
    """Return the text of an exception, as people at a browser can do what it says."""
    is_ours = isinstance(error, NotAudited)
    return as_written(error, {"unaudited": "--unaudited to the command limpyd-jobs"}) if is_ours else described(error)


def refusal_of(error: Exception) -> Refusal:
    """Return what is answered instead of an exception."""
    if isinstance(error, Refusal):
        return error
    if is_of_wrong_type(error):
        told = f"A key in Redis is of a wrong type, as another program wrote it ({one_line(error, MAX_MESSAGE)})"
        return Refusal(503, f"{told}. The page Check says which, and limpyd-jobs check --repair mends it")
    if isinstance(error, RedisError):
        return Refusal(503, f"Redis cannot be used: {one_line(error, MAX_MESSAGE)}")
    if isinstance(error, NotAudited):
        return Refusal(503, one_line(told_of(error), MAX_MESSAGE))
    if type(error) is LookupError:
        return Refusal(404, one_line(error, MAX_MESSAGE))
    if isinstance(error, UnicodeEncodeError):
        return Refusal(400, "What is asked for has bytes in it that are not UTF-8, which cannot be there")
    if type(error) is ValueError or isinstance(error, LimpydJobsException):
        return Refusal(400, one_line(error, MAX_MESSAGE))
    return Refusal(500, "Something went wrong here. The log of the dashboard says what")
