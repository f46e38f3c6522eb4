"""A definition's statement about its setting's effect is true: one that acts is read somewhere, and no other is."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path

from penstock.config.broker import node_settings, with_changes
from penstock.config.node import NodeSettings
from penstock.config.properties import Effect, Property, PropertyType, UpdateMode
from penstock.config.tables import BROKER_PROPERTIES, GROUP_PROPERTIES, TOPIC_PROPERTIES, TOPIC_SYNONYMS
from penstock.config.topic import TopicSettings

SOURCE = Path(__file__).parents[3] / "src" / "penstock"
# Clients and commands have settings of their own, some of the same name.
ROOMS = ("api", "core", "node", "runtime", "server", "storage")
# Where properties become settings; the checks in `config` read what has no effect too.
COMPOSERS = ("config/broker.py", "config/topic.py")
FIELDS = {field.name for settings in (NodeSettings, TopicSettings) for field in fields(settings)}


@cache
def reads() -> tuple[set[str], set[str]]:
    """Every attribute that is read and every text that is mentioned, where settings act."""
    paths = [path for room in ROOMS for path in (SOURCE / room).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    composing = [node for name in COMPOSERS for node in ast.walk(ast.parse((SOURCE / name).read_text("utf-8")))]
    attributes = {
        node.attr for node in (*nodes, *composing) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    texts = {
        node.value for node in (*nodes, *composing) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return attributes, texts


def is_read(row: Property) -> bool:
    attributes, texts = reads()
    return row.name in texts or row.field in texts or (row.field in FIELDS and row.field in attributes)


def test_a_setting_without_a_mark_is_read() -> None:
    gives_a_default = {
        synonym.name
        for name, synonyms in TOPIC_SYNONYMS.items()
        if TOPIC_PROPERTIES[name].effect is Effect.ACTED_ON
        for synonym in synonyms
    }
    rows = (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values(), *GROUP_PROPERTIES.values())
    acting = [row for row in rows if row.effect is Effect.ACTED_ON and row.name not in gives_a_default]
    assert [row.name for row in acting if not is_read(row)] == []


def test_a_setting_that_is_marked_is_not_read() -> None:
    rows = (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values(), *GROUP_PROPERTIES.values())
    idle = [row for row in rows if row.effect is not Effect.ACTED_ON]
    assert [row.name for row in idle if is_read(row) or row.field in FIELDS] == []


def test_a_setting_that_can_change_while_the_node_runs_does() -> None:
    settings, _ = node_settings(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
        }
    )
    others = {PropertyType.STRING: "10.0.0.7:5"}

    def other(row: Property) -> str:
        if row.type is PropertyType.BOOLEAN:
            return "false" if getattr(settings, row.field) else "true"
        return others.get(row.type, str(max(7, int(row.minimum or 0))))

    given = {synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms}
    rows = [
        row
        for row in BROKER_PROPERTIES.values()
        if row.effect is Effect.ACTED_ON and row.update in (UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER)
    ]
    assert [
        row.name
        for row in rows
        # Listeners look TLS and SASL up for themselves.
        if row.name not in given
        and not row.name.startswith(("ssl.", "sasl."))
        and getattr(with_changes(settings, {row.name: other(row)}), row.field) == getattr(settings, row.field)
    ] == []
    secured = with_changes(settings, {"ssl.client.auth": "required", "listener.name.a.ssl.keystore.key": "x"})
    assert secured.listener_property("A", "ssl.client.auth") == "required"
    assert secured.listener_property("A", "ssl.keystore.key") == "x"
    assert secured.listener_property("B", "ssl.keystore.key") is None
    assert with_changes(settings, {"node.id": "7", "unheard.of": "7"}).node_id == 1
