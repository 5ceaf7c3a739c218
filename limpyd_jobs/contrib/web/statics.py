"""The files that pages load. Their names have a hash of what is in them, so a browser may keep them for ever."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FOLDER = Path(__file__).with_name("static")

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}


class StaticFile(NamedTuple):
    """A file, as it is sent."""

    kind: str
    content: bytes
    compressed: bytes


@cache
def static_names() -> Mapping[str, str]:
    """Return the names that pages use, by the name of the file: ``app.3f2a1b0c.css`` of ``app.css``."""
    return {name: _hashed(name, each.content) for name, each in _files().items()}


@cache
def _files() -> Mapping[str, StaticFile]:
    return {
        path.relative_to(FOLDER).as_posix(): StaticFile(
            KINDS[path.suffix], path.read_bytes(), gzip.compress(path.read_bytes(), mtime=0)
        )
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in KINDS
    }


@cache
def _by_hashed_name() -> Mapping[str, StaticFile]:
    return {static_names()[name]: each for name, each in _files().items()}


def _hashed(name: str, content: bytes) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{sha256(content).hexdigest()[:12]}.{suffix}"


async def static_file(request: Request) -> Response:
    """Answer with a file."""
    found = _by_hashed_name().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file\n", 404)
    headers = dict(FOR_EVER)
    if "gzip" in Headers(scope=request.scope).get("accept-encoding", ""):
        return Response(found.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.content, headers=headers, media_type=found.kind)
