"""The calls that define the client API, as users write them, and every example in a docstring."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import penstock
import penstock.app
import penstock.client
import penstock.testing
from penstock.client import MODULES as CLIENT_MODULES

AIO = ("aio.admin", "aio.consumer", "aio.producer", "aio.sending", "aio.share")
MODULES = [f"penstock.client.application.{module}" for module in (*CLIENT_MODULES, *AIO)]
MODULES += [f"penstock.app.{module}" for module in ("application", "context", "policy")]
MODULES += ["penstock.testing.harness", "penstock.testing.cluster"]
CLIENTS = ("Admin", "Consumer", "Producer", "ShareConsumer")
# Methods that return or accept librdkafka's own objects, and those that the asyncio clients do not need.
BLOCKING_ONLY = {"group_metadata", "librdkafka", "positions", "send_offsets", "serve_reports"}
# Methods for workers and harnesses, not for authors of applications.
INTERNAL = ("App.make_", "App.open_requests")
IMPORT_MS_MAX = 50


def test_documented_calls_work(servers: str) -> None:
    admin = penstock.Admin(servers)
    admin.create_topic("payments-of-the-page", partitions=3, replication_factor=1)
    description = admin.describe_topic("payments-of-the-page")
    assert (description.partition_count, description.replication_factor) == (3, 1)

    producer = penstock.Producer(servers)
    for number in range(100):
        producer.send("payments-of-the-page", f"customer-{number % 7}", {"number": number})
    producer.flush()

    consumer = penstock.Consumer(servers, group="accounting", value=dict)
    consumer.subscribe(["payments-of-the-page"])
    numbers: dict[str | None, list[int]] = {}
    for _ in range(100):
        record = consumer.poll(timeout_s=20)
        assert record is not None
        numbers.setdefault(record.key, []).append(record.value["number"])
    consumer.commit_offsets()

    assert sorted(number for found in numbers.values() for number in found) == list(range(100))
    assert all(found == sorted(found) for found in numbers.values()), "a key's records came out of order"
    assert sum(admin.group_lag("accounting").values()) == 0
    for client in (producer, consumer, admin):
        client.close()


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, shop: str) -> None:  # noqa: ARG001
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    world = {"penstock": penstock, "asyncio": asyncio}
    world |= {each: getattr(penstock.client, each) for each in penstock.client.__all__}
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=world):
        runner.run(example)
    assert runner.failures == 0
    assert runner.tries > 0


def undocumented(module: ModuleType, name: str) -> list[str]:
    found = getattr(module, name)
    parts = [(name, found)]
    if inspect.isclass(found):
        public = [(each, part) for each, part in vars(found).items() if not each.startswith("_")]
        parts += [(f"{name}.{each}", part) for each, part in public if callable(part)]
    return [label for label, part in parts if ">>>" not in (inspect.getdoc(part) or "")]


def test_every_public_name_has_an_example() -> None:
    missing = [each for name in penstock.client.__all__ for each in undocumented(penstock.client, name)]
    # A protocol's and a serde's methods are shown by the class's example.
    shown_by_class = (
        "Bytes.",
        "Json.",
        "Serde.",
        "Text.",
        "Record.",
        "DeliveryFailed.",
        "Registry.",
        "Avro.",
        "JsonSchema.",
        "Protobuf.",
    )
    assert [name for name in missing if not name.startswith(shown_by_class)] == []


def test_every_public_name_of_applications_has_an_example() -> None:
    missing = [each for name in penstock.app.__all__ for each in undocumented(penstock.app, name)]
    missing += [each for name in ("AppHarness", "Cluster") for each in undocumented(penstock.testing, name)]
    # The class's example shows the methods.
    assert [name for name in missing if not name.startswith((*INTERNAL, "AppHarness.", "Cluster."))] == []


@pytest.mark.parametrize("name", CLIENTS)
def test_asyncio_has_the_same_names_and_an_example_for_each(name: str) -> None:
    blocking, waiting = getattr(penstock.client, name), getattr(penstock.aio, name)
    names = {each for each in dir(blocking) if not each.startswith("_")} - BLOCKING_ONLY
    assert sorted(names - set(dir(waiting))) == []
    assert undocumented(penstock.aio, name) == []


def test_exports_match_their_modules() -> None:
    assert sorted(penstock.client.__all__) == sorted(name for names in CLIENT_MODULES.values() for name in names)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="Konsumer"):
        _ = penstock.Konsumer  # type: ignore[attr-defined]


def test_import_loads_no_slow_modules() -> None:
    """It loads none of the modules that take time, so how busy the machine is does not matter."""
    program = "import sys; before = set(sys.modules); import penstock;print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("penstock")] == [
        "penstock",
        "penstock.model",
        "penstock.model.version",
    ]
    assert not {"confluent_kafka", "msgspec", "asyncio"} & set(loaded)
    assert len(loaded) < 50
