"""Requests that are refused, with one line for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping


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
