"""Pages of the console in a browser."""

from __future__ import annotations

from typing import Any

# What a page may wait for on a busy machine.
PATIENCE_MS = 20_000


class Pages:
    """Opens pages of the console, and keeps what they asked for and what went wrong in them."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        self._address = address
        self._contexts: list[Any] = []
        self.requested: list[str] = []
        self.errors: list[str] = []

    def open(self, place: str = "", **options: Any) -> Any:
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(f"{page.url}: {error}\n{error.stack or ''}"))
        page.goto(f"{self._address}/console/#/{place}")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
