"""A node's HTTP endpoints: `/metrics` for Prometheus, `/health/live` and `/health/ready`.

`/metrics?detail=topics,groups` adds details to the default metrics; `/metrics/detail` has details alone, so that they
can be scraped separately and less often, without duplicate series.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from penstock.core.metrics.sheet import OPENMETRICS_TYPE, TEXT_TYPE, Sheet
from penstock.node.metrics.collector import DETAILS, Collector
from penstock.node.metrics.health import Checks, alive, health_handler
from penstock.server.http import HttpAnswer, HttpHandler, HttpRequest

DETAIL_PATH = "/metrics/detail"


def make_handlers(collectors: Sequence[Collector], ready: Checks) -> dict[str, HttpHandler]:
    """The handlers by path; `collectors` may grow later."""

    def metrics(request: HttpRequest) -> Generator[None, None, HttpAnswer]:
        asked = {word for text in request.query.get("detail", ()) for word in text.split(",") if word}
        only_details = request.path == DETAIL_PATH
        details = DETAILS if "all" in asked or (only_details and not asked) else frozenset(asked)
        unknown = details - DETAILS
        if unknown:
            known = ", ".join(sorted(DETAILS))
            return HttpAnswer(
                f"there are no details called {', '.join(sorted(unknown))}; ask for {known}\n".encode(), 400
            )
        sheet = Sheet(details, has_rest=not only_details)
        for collect in tuple(collectors):
            yield from collect(sheet)
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        parts = []
        for part in sheet.render(openmetrics=openmetrics):
            parts.append(part)
            yield
        return HttpAnswer(b"".join(parts), 200, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE)

    live, serving = health_handler(alive), health_handler(ready)
    return {
        "/metrics": metrics,
        DETAIL_PATH: metrics,
        "/health/live": live,
        "/health/ready": serving,
        "/healthz": live,
        "/livez": live,
        "/readyz": serving,
    }
