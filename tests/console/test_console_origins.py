"""What a page of another origin can do with a gateway, in a real browser: nothing. The console's own pages can."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from console_browser import PATIENCE_MS

from support.gateway_process import GatewayProcess

PAGE = """<!doctype html><title>Not yours</title><body><script>
const gateway = %(gateway)s, topic = %(topic)s, got = []
const note = what => value => { got.push(what + ': ' + value) }
const record = JSON.stringify({value: 'evil'})
const publish = gateway + '/topics/' + topic + '/publish'

const fetched = (what, address, options) =>
  fetch(address, options).then(answer => answer.text()).then(text => text && note(what)(text), () => {})

function form(address, enctype) {
  const [frame, made, field] = ['iframe', 'form', 'input'].map(kind => document.createElement(kind))
  frame.name = 'f' + Math.random()
  Object.assign(made, {action: address, method: 'post', enctype, target: frame.name})
  field.name = '{"value": "evil", "x": "'
  field.value = '"}'
  made.append(field)
  document.body.append(frame, made)
  return new Promise(done => { frame.onload = () => { if (made.sent) done(); }; made.sent = true; made.submit() })
}

const image = address => new Promise(done => {
  const made = new Image()
  made.onload = made.onerror = done
  made.src = address
})

const socket = address => new Promise(done => {
  const made = new WebSocket(address.replace('http', 'ws'))
  made.onmessage = event => note('WebSocket')(event.data)
  made.onopen = () => note('WebSocket')('open')
  made.onclose = made.onerror = done
})

const events = address => new Promise(done => {
  const made = new EventSource(address)
  made.onmessage = event => note('events')(event.data)
  made.onopen = () => note('events')('open')
  made.onerror = () => { made.close(); done() }
})

Promise.all([
  fetched('json', publish, {method: 'POST', body: record, headers: {'Content-Type': 'application/json'}}),
  fetched('text', publish, {method: 'POST', body: record}),
  fetched('no-cors', publish, {method: 'POST', mode: 'no-cors', body: record}),
  fetched('no type', publish, {method: 'POST', mode: 'no-cors', body: new Blob([record])}),
  fetched('bytes', gateway + '/api/v1/topics/' + topic + '/messages', {method: 'POST', mode: 'no-cors', body: record}),
  fetched('delete', gateway + '/topics/' + topic, {method: 'DELETE'}),
  fetched('read', gateway + '/api/v1/topics/' + topic + '/messages?from=earliest'),
  form(publish, 'text/plain'),
  form(publish, 'application/x-www-form-urlencoded'),
  form(publish, 'multipart/form-data'),
  image(gateway + '/topics/' + topic + '/subscribe?group=evil&timeout=0'),
  socket(gateway + '/topics/' + topic + '/tail?offset=earliest'),
  events(gateway + '/topics/' + topic + '/tail?offset=earliest'),
]).then(() => { window.done = true })
</script>"""


class Elsewhere(http.server.ThreadingHTTPServer):
    """Another site, with one page."""

    page = b""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.server.page)))
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="elsewhere")
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refusals(rest: httpx.Client) -> int:
    found = re.search(r'http_requests_total{port="rest",path="refused",status="403"} (\d+)', rest.get("/metrics").text)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("site", ["127.0.0.1", "localhost"])
def test_a_page_from_another_origin_writes_and_reads_nothing(
    browser: Any,
    gateway: GatewayProcess,
    rest: httpx.Client,
    new_topic: Callable[..., str],
    elsewhere: Elsewhere,
    site: str,
) -> None:
    topic = new_topic("mine", partitions=1)
    rest.post(f"/topics/{topic}/publish", json={"value": "secret"}).raise_for_status()
    page = PAGE % {"gateway": json.dumps(gateway.rest), "topic": json.dumps(topic)}
    elsewhere.page = page.encode()
    context = browser.new_context()
    refused = refusals(rest)
    try:
        opened = context.new_page()
        opened.goto(f"http://{site}:{elsewhere.server_address[1]}/")
        opened.wait_for_function("window.done", timeout=3 * PATIENCE_MS)
        assert opened.evaluate("got") == []
    finally:
        context.close()
    # They came, and were turned away.
    assert refusals(rest) >= refused + 10
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 1
    groups = rest.get("/v3/clusters/-/consumer-groups").json()["data"]
    assert "evil" not in [group["consumer_group_id"] for group in groups]


def test_a_cross_site_link_opens_the_console(browser: Any, gateway: GatewayProcess, elsewhere: Elsewhere) -> None:
    elsewhere.page = f'<!doctype html><a href="{gateway.rest}/console/">Console</a>'.encode()
    context = browser.new_context()
    try:
        opened = context.new_page()
        opened.goto(f"http://localhost:{elsewhere.server_address[1]}/")
        opened.click("a", timeout=PATIENCE_MS)
        opened.wait_for_selector("nav a", timeout=PATIENCE_MS)
        assert opened.url.startswith(f"{gateway.rest}/console/")
    finally:
        context.close()
