"""`/config`, `/mode` and `/compatibility`: compatibility levels, modes, and compatibility checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from penstock.gateway.registry import errors
from penstock.gateway.registry.api.shapes import (
    MEDIA_TYPES,
    NORMALIZE,
    SCHEMA_BODY,
    SUBJECT,
    VERSION,
    answer,
    source_of,
)
from penstock.gateway.registry.decisions import Decision, compatibility_problems
from penstock.gateway.registry.lookup import parse_source, version_number
from penstock.gateway.registry.service import Registry
from penstock.gateway.registry.settings_decisions import delete_config, delete_mode, set_config, set_mode
from penstock.gateway.registry.subjects import context_of, parse_subject
from penstock.gateway.web.operations import Body, Call, Operation
from penstock.gateway.web.parameters import flag

CONFIG_SHAPE = {
    "type": "object",
    "properties": {
        "compatibility": {"type": ["string", "null"], "description": "NONE, BACKWARD, FORWARD, FULL, …_TRANSITIVE"},
        "normalize": {"type": ["boolean", "null"]},
        "alias": {"type": ["string", "null"]},
        "compatibilityGroup": {"type": ["string", "null"]},
    },
}
MODE_SHAPE = {"type": "object", "required": ["mode"], "properties": {"mode": {"type": "string"}}}
DEFAULT_TO_GLOBAL = flag("defaultToGlobal", "Fall back to the global setting if the subject has none.")
FORCE = flag("force", "Change to IMPORT even if there are schemas.")


def place_of(call: Call) -> str:
    """The subject or context that settings apply to; empty for all."""
    return parse_subject(call["subject"]).qualified if "subject" in call.parameters else ""


def settings_operations(registry: Registry) -> list[Operation]:
    """Operations on settings, each globally and for one subject."""

    async def get_config(call: Call) -> Response:
        place = place_of(call)
        found = registry.state.config(place)
        if found is None:
            if place and not call["defaultToGlobal"]:
                raise errors.level_not_configured(place)
            found = registry.state.config_in_scope(place)
        shown = {key: value for key, value in found.items() if key != "subject"}
        shown.setdefault("compatibilityLevel", registry.state.level(place).value)
        return answer(shown)

    async def put_config(call: Call) -> Response:
        place = place_of(call)
        return answer(await registry.write(lambda state: set_config(state, place, call.body)))

    async def remove_config(call: Call) -> Response:
        place = place_of(call)
        return answer(await registry.write(lambda state: delete_config(state, place)))

    async def get_mode(call: Call) -> Response:
        place = place_of(call)
        found = registry.state.mode(place)
        if found is None:
            if place and not call["defaultToGlobal"]:
                raise errors.mode_not_configured(place)
            found = registry.state.mode_in_scope(place)
        return answer({"mode": found})

    async def put_mode(call: Call) -> Response:
        place = place_of(call)
        decide: Callable[..., Decision] = lambda state: set_mode(state, place, call.body["mode"], force=call["force"])  # noqa: E731
        return answer(await registry.write(decide))

    async def remove_mode(call: Call) -> Response:
        place = place_of(call)
        return answer(await registry.write(lambda state: delete_mode(state, place)))

    async def check(call: Call) -> Response:
        subject = parse_subject(call["subject"]).qualified
        against = None
        if "version" in call.parameters:
            number, live = version_number(call["version"]), registry.state.live_versions(subject)
            against = live[-1:] if number is None else [schema for schema in live if schema.version == number]
            if number is not None and not against:
                raise errors.version_not_found(number)
        parsed = parse_source(registry.state, context_of(subject), source_of(call.body))
        reasons = compatibility_problems(registry.state, subject, parsed, against)
        shown: dict[str, Any] = {"is_compatible": not reasons}
        if call["verbose"]:
            shown["messages"] = reasons
        return answer(shown)

    operations = []
    both: Mapping[str, tuple[Any, ...]] = {"": (), "/{subject}": (SUBJECT,)}
    for tail, subject in both.items():
        whose = "a subject's own" if tail else "the"
        operations += [
            Operation(
                "GET", f"/config{tail}", get_config, f"Show {whose} settings.", "Config", (*subject, DEFAULT_TO_GLOBAL)
            ),
            Operation(
                "PUT",
                f"/config{tail}",
                put_config,
                f"Change {whose} settings.",
                "Config",
                subject,
                Body(CONFIG_SHAPE, MEDIA_TYPES, example={"compatibility": "FULL"}),
            ),
            Operation("DELETE", f"/config{tail}", remove_config, f"Delete {whose} settings.", "Config", subject),
            Operation("GET", f"/mode{tail}", get_mode, f"Show {whose} mode.", "Mode", (*subject, DEFAULT_TO_GLOBAL)),
            Operation(
                "PUT",
                f"/mode{tail}",
                put_mode,
                f"Change {whose} mode.",
                "Mode",
                (*subject, FORCE),
                Body(MODE_SHAPE, MEDIA_TYPES, example={"mode": "READONLY"}),
            ),
            Operation("DELETE", f"/mode{tail}", remove_mode, f"Delete {whose} mode.", "Mode", subject),
        ]
    verbose = flag("verbose", "Include the reasons.")
    path = "/compatibility/subjects/{subject}/versions"
    summary = "Check whether a schema is compatible"
    return [
        *operations,
        Operation(
            "POST",
            path,
            check,
            f"{summary} with a subject's versions.",
            "Compatibility",
            (SUBJECT, NORMALIZE, verbose),
            SCHEMA_BODY,
        ),
        Operation(
            "POST",
            f"{path}/{{version}}",
            check,
            f"{summary} with a given version.",
            "Compatibility",
            (SUBJECT, VERSION, NORMALIZE, verbose),
            SCHEMA_BODY,
        ),
    ]
