"""An AsyncAPI document of an application, from its functions and their types, and a page of it."""

from __future__ import annotations

import html
import json
from typing import Any

from penstock.app.application import App
from penstock.app.requests import REPLY_TOPIC
from penstock.app.schemas import output_type
from penstock.app.subscription import Subscription
from penstock.client.application.serdes import json_schema_of

SPECIFICATION = "3.0.0"

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem; color: #1b2733 }
@media (prefers-color-scheme: dark) { body { background: #10161d; color: #d8e0e8 } pre { background: #1a232d } }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem } small, dt { color: #667788 }
pre { background: #f2f5f8; border-radius: 8px; overflow: auto; padding: 1rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem } dd { margin: 0 }
"""


def describe(app: App) -> dict[str, Any]:
    """The AsyncAPI 3 document of an application."""
    channels: dict[str, object] = {}
    operations: dict[str, Any] = {}
    for subscription in app.subscriptions:
        schema = schema_of(subscription.binding.value_type)
        for topic in subscription.topics:
            _channel(channels, topic, schema)
            operations[f"{subscription.name}.{topic}"] = _operation(subscription, topic, "receive")
            letters = subscription.policy.dead_letter_topic(topic)
            if letters is not None:
                _channel(channels, letters, schema)
                operations[f"{subscription.name}.{letters}"] = _operation(subscription, letters, "send")
        if subscription.publish is not None:
            _channel(channels, subscription.publish, schema_of(output_type(subscription)))
            operations[f"{subscription.name}.publish"] = _operation(subscription, subscription.publish, "send")
    return {
        "asyncapi": SPECIFICATION,
        "info": {"title": app.title, "version": app.version},
        "defaultContentType": "avro/binary" if app.schemas == "avro" else "application/json",
        "servers": {"cluster": {"host": app.connection.bootstrap, "protocol": "kafka"}},
        "channels": channels,
        "operations": operations,
    }


def schema_of(kind: Any) -> dict[str, object]:
    """The JSON Schema of a type; an empty one if it has none."""
    try:
        return json_schema_of(kind)
    except (TypeError, ValueError):
        return {}


def page(app: App) -> str:
    """A self-contained HTML page that describes an application."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(app.title)}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{html.escape(app.title)}</h1><small>version {html.escape(app.version)}, ")
    parts.append("<a href='/asyncapi.json'>AsyncAPI</a>, <a href='/metrics'>metrics</a></small>")
    for subscription in app.subscriptions:
        policy = subscription.policy
        text = (subscription.binding.handler.__doc__ or "").strip()
        facts = {
            "topics": ", ".join(subscription.topics),
            "sends to": subscription.publish or "—",
            "group": subscription.group + (" (share group)" if subscription.share else ""),
            "guarantee": "exactly once" if subscription.exactly_once else "at least once",
            "tries": str(policy.retries + 1),
            "dead letters": ", ".join(policy.dead_letter_topic(each) or "none" for each in subscription.topics),
        }
        rows = "".join(f"<dt>{name}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
        schema = html.escape(json.dumps(schema_of(subscription.binding.value_type), indent=2))
        parts.append(f"<h2>{html.escape(subscription.name)}</h2><p>{html.escape(text)}</p><dl>{rows}</dl>")
        parts.append(f"<pre>{schema}</pre>")
    return "".join(parts)


def _channel(channels: dict[str, object], topic: str, schema: dict[str, Any]) -> None:
    channels.setdefault(topic, {"address": topic, "messages": {"record": {"payload": schema}}})


def _operation(subscription: Subscription, topic: str, action: str) -> dict[str, object]:
    text = (subscription.binding.handler.__doc__ or "").strip()
    found: dict[str, Any] = {"action": action, "channel": {"$ref": f"#/channels/{_pointer(topic)}"}}
    if text:
        found["summary"] = text.splitlines()[0]
    if action == "receive":
        found["bindings"] = {"kafka": {"groupId": {"type": "string", "const": subscription.group}}}
        if subscription.reply:
            found["reply"] = {"address": {"location": f"$message.header#/{REPLY_TOPIC}"}}
    return found


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
