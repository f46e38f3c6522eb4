"""The committed message modules are what the definitions say, and importing the tables imports none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from message_values import all_messages

from penstock.wire import apis, generate, schema
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.primitives import MalformedMessage

MESSAGES = Path(generate.__file__).parent / "messages"


def test_the_committed_modules_are_what_the_generator_writes() -> None:
    committed = {path.name: path.read_text() for path in MESSAGES.glob("*.py") if path.name != "__init__.py"}
    assert committed == generate.modules()


def test_every_api_has_its_classes() -> None:
    for key, api in APIS.items():
        assert apis.request_class(key).__name__ == api.name + "Request"
        assert apis.response_class(key).__name__ == api.name + "Response"


def test_both_halves_of_an_api_have_the_same_versions() -> None:
    found = all_messages()
    for api in APIS.values():
        request, response = found[api.name + "Request"].definition, found[api.name + "Response"].definition
        assert request.versions == response.versions == (api.first_version, api.last_version)
        assert request.flexible_from == response.flexible_from == api.flexible_from


def test_some_rows_of_the_api_table() -> None:
    produce = APIS[ApiKey.PRODUCE]
    assert (produce.first_version, produce.last_version, produce.flexible_from) == (3, 13, 9)
    assert produce.listeners == ("broker",)
    assert APIS[ApiKey.VOTE].listeners == ("controller",)
    # Kafka 4.1 knows version 6 and does not advertise it yet.
    assert (APIS[ApiKey.INIT_PRODUCER_ID].last_version, APIS[ApiKey.INIT_PRODUCER_ID].last_stable_version) == (6, 5)


def test_every_record_type_has_its_classes() -> None:
    assert apis.metadata_record(2).__name__ == "TopicRecord"
    assert apis.remote_log_record(2).__name__ == "RemotePartitionDeleteMetadataRecord"
    assert apis.coordinator_record("group", 1).value.__name__ == "OffsetCommitValue"
    assert apis.coordinator_record("transaction", 0).key.__name__ == "TransactionLogKey"
    assert apis.coordinator_record("share", 1).value.__name__ == "ShareUpdateValue"
    for message in all_messages().values():
        if message.definition.kind == "record" and message.module == "metadata_records":
            assert apis.metadata_record(message.definition.type or 0) is message.cls


def test_unknown_record_types_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="no records of type 999"):
        apis.metadata_record(999)
    with pytest.raises(MalformedMessage, match="group coordinator has no records of type 99"):
        apis.coordinator_record("group", 99)


def test_knowing_the_apis_imports_no_message() -> None:
    program = (
        "import sys, penstock.wire.apis\n"
        "print(sorted(n for n in sys.modules if n.startswith('penstock.wire.messages.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['penstock.wire.messages.table']"


def test_a_definition_is_parsed_as_written() -> None:
    definition = schema.parse(
        "api 7 Example on broker controller\n\n"
        "request ExampleRequest versions 1-3 flexible 2+ unstable\n"
        "  name    string? = null  2+ ignorable\n"
        "  count   int32 = -1      1-2\n"
        "  places  []Place         nullable 3+\n"
        "    id    uuid            3+ tag 4\n"
    )
    assert (definition.key, definition.name, definition.listeners) == (7, "Example", ("broker", "controller"))
    message = definition.message("ExampleRequest")
    assert (message.versions, message.flexible_from, message.unstable) == ((1, 3), 2, True)
    name, count, places = message.struct.fields
    assert (name.null_by_default, name.ignorable, 1 in name.versions, 2 in name.nullable) == (True, True, False, True)
    assert (count.default, count.ignorable, 3 in count.versions) == (-1, False, False)
    assert (places.array, places.default, 2 in places.nullable, 3 in places.nullable) == (True, (), False, True)
    assert places.struct is not None
    assert places.struct.fields[0].tag == 4


def test_two_layouts_under_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="struct Place is defined twice"):
        schema.parse(
            "api 7 Example on broker\n\n"
            "request ExampleRequest versions 0\n"
            "  here     Place\n    id  uuid\n"
            "  there    Place\n    id  string\n"
        )
