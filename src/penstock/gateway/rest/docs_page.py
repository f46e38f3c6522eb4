"""The documentation page at `/docs`, rendered from the OpenAPI document as one file that works offline."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from html import escape
from typing import Any

from penstock.gateway.console.static import SECURITY

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --get: #2a7; --post: #27c; --put: #b72; --delete: #c33 }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1.5rem }
h1 { margin: 0 0 .2rem } h2 { margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line) }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--soft); padding: .7rem; border-radius: 6px; overflow-x: auto; margin: .4rem 0 }
details { border: 1px solid var(--line); border-radius: 6px; margin: .35rem 0; padding: .35rem .7rem }
summary { cursor: pointer } summary span { opacity: .75; margin-left: .6rem }
b.m { display: inline-block; width: 4.2rem; color: #fff; text-align: center; border-radius: 4px; font-size: 12px }
.get { background: var(--get) } .post { background: var(--post) } .put, .patch { background: var(--put) }
.delete { background: var(--delete) }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
td { border-top: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top }
input[type=search] { width: 100%; padding: .5rem .7rem; font: inherit; border: 1px solid var(--line);
  border-radius: 6px; background: transparent; color: inherit; margin-top: 1rem }
"""
SCRIPT = """
document.querySelector('input').addEventListener('input', event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  for (const each of document.querySelectorAll('details'))
    each.hidden = !words.every(word => each.dataset.text.includes(word));
});
"""


def docs_headers() -> dict[str, str]:
    """The console's security headers, with a policy that allows only this page's own script and style."""
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; frame-ancestors 'none'"
    return {**SECURITY, "Content-Security-Policy": policy}


def docs_page(described: dict[str, Any]) -> str:
    """The HTML page."""
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append(_operation(method, path, operation))
    sections = "".join(f"<section><h2>{escape(tag)}</h2>{''.join(parts)}</section>" for tag, parts in by_tag.items())
    info = described["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])} Version {escape(info['version'])}. "
        'As OpenAPI: <a href="/openapi.json">/openapi.json</a>.</p>'
        '<input type="search" placeholder="Search" aria-label="Search">'
        f"{sections}<script>{SCRIPT}</script></body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}{', required' if each['required'] else ''}"
        f"</td><td>{escape(each['description'])}{_default(each['schema'])}</td></tr>"
        for each in operation.get("parameters", [])
    )
    searched = f"{method} {path} {operation['summary']}".lower()
    return (
        f'<details data-text="{escape(searched)}"><summary><b class="m {method}">{method.upper()}</b> '
        f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span></summary>"
        f"{f'<table>{rows}</table>' if rows else ''}{_body(operation)}{_curl(method, path, operation)}</details>"
    )


def _default(schema: dict[str, Any]) -> str:
    return f" Default: <code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else ""


def _body(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    types = ", ".join(f"<code>{escape(kind)}</code>" for kind in body["content"])
    schema = next(iter(body["content"].values()))["schema"]
    shown = f"<pre>{escape(json.dumps(schema, indent=2))}</pre>" if schema else ""
    return f"<p>Body: {types}</p>{shown}"


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    words = ["curl"] + ([] if method == "get" else ["-X", method.upper()]) + [f"http://localhost:8080{path}"]
    body = operation.get("requestBody")
    if body is not None:
        kind, shape = next(iter(body["content"].items()))
        words += ["-H", f"'Content-Type: {kind}'"]
        if "example" in shape:
            words += ["-d", f"'{json.dumps(shape['example'])}'"]
    return f"<pre>{escape(' '.join(words))}</pre>"
