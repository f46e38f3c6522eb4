"""The console of a gateway that people sign in to, in a real browser, and what other sites' pages can do to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_browser import PATIENCE_MS

from support.secure_cluster import ADMIN, PASSWORD
from support.secured_gateway import SecuredGateway

COOKIE = "__Host-penstock"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    with SecuredGateway(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    opened = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


@pytest.fixture
def other_site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and the address of another site that serves it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            del arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield tmp_path, f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def sign_in(page: Any, secured: SecuredGateway, password: str = PASSWORD) -> None:
    page.goto(f"{secured.rest}/console/")
    page.fill("[name=username]", ADMIN)
    page.fill("[name=password]", password)
    page.click("button.primary")


def session_cookie(context: Any) -> dict[str, Any]:
    [found] = [cookie for cookie in context.cookies() if cookie["name"] == COOKIE]
    return dict(found)


def test_people_sign_in_and_out(context: Any, secured: SecuredGateway) -> None:
    page = context.new_page()
    sign_in(page, secured, "wrong")
    page.wait_for_selector("[role=alert]")
    assert page.inner_text("[role=alert]") == "Wrong user or password. Try again."
    assert page.evaluate("document.activeElement.name") == "password"
    assert context.cookies() == []
    page.fill("[name=password]", PASSWORD)
    page.press("[name=password]", "Enter")
    page.wait_for_selector("aside >> text=sign out")
    cookie = session_cookie(context)
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert page.evaluate("document.cookie") == ""
    assert PASSWORD not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    page.reload()
    page.wait_for_selector("aside >> text=sign out")
    page.click("text=sign out")
    page.wait_for_selector("text=You have signed out.")
    assert context.cookies() == []
    # The session is gone, not only the cookie.
    answer = httpx.get(f"{secured.rest}/topics", cookies={COOKIE: cookie["value"]}, verify=False)
    assert answer.status_code == 401


def test_the_sign_in_page_fits_a_phone(browser: Any, secured: SecuredGateway) -> None:
    opened = browser.new_context(ignore_https_errors=True, viewport={"width": 360, "height": 640})
    page = opened.new_page()
    page.goto(f"{secured.rest}/console/")
    page.wait_for_selector("form", timeout=PATIENCE_MS)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    opened.close()


def test_a_session_that_ends_leads_back_to_the_sign_in_page(context: Any, secured: SecuredGateway) -> None:
    page = context.new_page()
    sign_in(page, secured)
    page.wait_for_selector("aside >> text=sign out")
    context.clear_cookies()
    page.wait_for_selector("text=Your session has ended.")


def test_a_known_session_id_is_not_taken_up(context: Any, secured: SecuredGateway) -> None:
    known = "A" * 43
    context.add_cookies([{"name": COOKIE, "value": known, "url": secured.rest, "secure": True}])
    page = context.new_page()
    sign_in(page, secured)
    page.wait_for_selector("aside >> text=sign out")
    first = session_cookie(context)["value"]
    assert first != known
    answer = httpx.get(f"{secured.rest}/topics", cookies={COOKIE: known}, verify=False)
    assert answer.status_code == 401


def test_changes_without_the_token_are_refused(context: Any, secured: SecuredGateway) -> None:
    page = context.new_page()
    sign_in(page, secured)
    page.wait_for_selector("aside >> text=sign out")
    script = """async ([method, path]) => {
        const headers = {'Content-Type': 'application/json'}
        const body = method === 'DELETE' ? undefined : JSON.stringify({name: 'forged', value: 'x'})
        return (await fetch(path, {method, headers, body})).status
    }"""
    for method, path in (("POST", "/topics"), ("POST", "/topics/any/publish"), ("DELETE", "/console/session")):
        assert page.evaluate(script, [method, path]) == 403, path
    with_token = """async () => {
        const {token} = await (await fetch('/console/session')).json()
        const headers = {'Content-Type': 'application/json', 'X-CSRF-Token': token}
        return (await fetch('/topics', {method: 'POST', headers, body: JSON.stringify({name: 'by-console'})})).status
    }"""
    assert page.evaluate(with_token) in (200, 201)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_pages_of_other_sites_change_and_see_nothing(
    context: Any, secured: SecuredGateway, other_site: tuple[Path, str], host: str
) -> None:
    page = context.new_page()
    sign_in(page, secured)
    page.wait_for_selector("aside >> text=sign out")
    directory, address = other_site
    address = address.replace("localhost", host)
    (directory / "form.html").write_text(
        f"""<form method=post enctype=text/plain action="{secured.rest}/topics">
        <input name='{{"name": "forged", "x": "' value='"}}'></form><script>document.forms[0].submit()</script>"""
    )
    (directory / "fetch.html").write_text(
        f"""<script>
        const options = {{method: 'POST', credentials: 'include', mode: 'no-cors', body: '{{"name": "forged"}}'}}
        const seen = fetch('{secured.rest}/console/session', {{credentials: 'include'}}).then((a) => a.text())
        Promise.allSettled([fetch('{secured.rest}/topics', options), seen]).then(([, read]) => {{
            document.title = read.status
        }})</script>"""
    )
    (directory / "frame.html").write_text(f"""<iframe src="{secured.rest}/console/"></iframe>""")
    page.goto(f"{address}/form.html")
    page.wait_for_url(f"{secured.rest}/topics")
    assert "error_code" in page.inner_text("body")
    page.goto(f"{address}/fetch.html")
    page.wait_for_function("document.title === 'rejected'")
    page.goto(f"{address}/frame.html")
    page.wait_for_load_state("networkidle")
    assert page.frames[1].query_selector("#app") is None
    with secured.superuser() as admin:
        assert "forged" not in admin.get("/topics").json()


def test_what_records_contain_is_not_run(context: Any, secured: SecuredGateway) -> None:
    topic = secured.topic("scripts")
    attack = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'
    with secured.superuser() as admin:
        body = {"key": attack, "value": attack, "headers": {"h": attack}}
        assert admin.post(f"/topics/{topic}/publish", json=body).status_code == 200
        raw = admin.get(f"/topics/{topic}/partitions/0/records?offset=0", headers={"Accept": "text/html,*/*"})
        assert "html" not in raw.headers["Content-Type"]
        assert raw.headers["X-Content-Type-Options"] == "nosniff"
        assert raw.headers["X-Frame-Options"] == "DENY"
    page = context.new_page()
    sign_in(page, secured)
    page.wait_for_selector("aside >> text=sign out")
    page.goto(f"{secured.rest}/console/#/topics/{topic}/messages")
    page.wait_for_selector("text=onerror")
    assert page.evaluate("window.attacked === undefined")
