"""Serves the console's pages, which are prebuilt and stored next to this module."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from importlib import resources

from starlette.responses import RedirectResponse, Response

from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.parameters import path
from penstock.gateway.web.problem import Problem

PAGES = "pages"
# Pages load nothing from other sites, and no other site may frame them. uPlot sets sizes by style attributes.
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


routes: Routes[object] = Routes("Console")


@routes.on("GET /console", "Show the console.", answer_type="text/html")
async def page(_: object, call: Call) -> Response:
    # Assets are found relative to the page, so its address must end with a slash.
    if not call.request.url.path.endswith("/"):
        return RedirectResponse("console/")
    return _answer(call, "index.html")


@routes.on("GET /console/{file}", "Get a file of the console.", path("file", "The file's name."))
async def asset(_: object, call: Call) -> Response:
    return _answer(call, call["file"])


@functools.cache
def _files() -> dict[str, tuple[bytes, str]]:
    """All files by name, with their ETags: they are few and small."""
    pages = resources.files(__package__).joinpath(PAGES)
    contents = {entry.name: entry.read_bytes() for entry in pages.iterdir() if entry.is_file()}
    return {name: (content, f'"{hashlib.sha256(content).hexdigest()[:20]}"') for name, content in contents.items()}


def _answer(call: Call, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise Problem(404, f"the console has no file {name[:100]}", "open /console/")
    content, tag = found
    headers = {**SECURITY, "ETag": tag, "Cache-Control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")
