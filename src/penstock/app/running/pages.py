"""The HTTP endpoints of `penstock app run`: metrics, health, lag for autoscalers, and the AsyncAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator

from penstock.app.application import App
from penstock.app.asyncapi import describe, page
from penstock.app.counters import Workers, render
from penstock.app.running.supervisor import Supervisor
from penstock.core.metrics.sheet import TEXT_TYPE
from penstock.server.http import HttpAnswer, HttpHandler, HttpListener, HttpRequest

JSON_TYPE = "application/json"


def make_pages(app: App, supervisor: Supervisor, host: str, port: int) -> HttpListener:
    """The listener; `start` it."""

    def health() -> HttpAnswer:
        healthy = supervisor.is_healthy
        body = {"status": "healthy" if healthy else "starting", **supervisor.lag()}
        return HttpAnswer(json.dumps(body).encode(), 200 if healthy else 503, JSON_TYPE)

    def lag() -> HttpAnswer:
        # An autoscaler that reads a lag of 0 would scale in although the lag is unknown; on an error, it waits.
        return HttpAnswer(json.dumps(supervisor.lag()).encode(), 200 if supervisor.knows_lag else 503, JSON_TYPE)

    def metrics() -> HttpAnswer:
        workers = Workers(app.name, supervisor.worker_count, supervisor.wanted, supervisor.restarts)
        return HttpAnswer(render(supervisor.counters(), workers), 200, TEXT_TYPE)

    answers: dict[str, Callable[[], HttpAnswer]] = {
        "/": lambda: HttpAnswer(page(app).encode(), 200, "text/html; charset=utf-8"),
        "/metrics": metrics,
        "/health": health,
        "/lag": lag,
        "/asyncapi.json": lambda: HttpAnswer(json.dumps(describe(app), indent=2).encode(), 200, JSON_TYPE),
    }
    return HttpListener(host, port, {path: _handler(answer) for path, answer in answers.items()})


def _handler(answer: Callable[[], HttpAnswer]) -> HttpHandler:
    def handle(_: HttpRequest) -> Generator[None, None, HttpAnswer]:
        return answer()
        yield

    return handle
