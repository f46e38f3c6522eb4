"""`/config`, `/mode` and `/compatibility`: compatibility levels, modes, and compatibility checks."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from penstock.gateway.registry import errors
from penstock.gateway.registry.api.services import RegistryServices
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
from penstock.gateway.registry.settings_decisions import delete_config, delete_mode, set_config, set_mode
from penstock.gateway.registry.subjects import context_of, parse_subject
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.parameters import flag

CONFIG_SHAPE = json_object(
    compatibility={"type": ["string", "null"], "description": "NONE, BACKWARD, FORWARD, FULL, …_TRANSITIVE"},
    normalize={"type": ["boolean", "null"]},
    alias={"type": ["string", "null"]},
    compatibilityGroup={"type": ["string", "null"]},
)
MODE_SHAPE = json_object(["mode"], mode={"type": "string"})
CONFIG_BODY = Body(CONFIG_SHAPE, MEDIA_TYPES, example={"compatibility": "FULL"})
MODE_BODY = Body(MODE_SHAPE, MEDIA_TYPES, example={"mode": "READONLY"})
DEFAULT_TO_GLOBAL = flag("defaultToGlobal", "Fall back to the global setting if the subject has none.")
FORCE = flag("force", "Change to IMPORT even if there are schemas.")
VERBOSE = flag("verbose", "Include the reasons.")


def scope_of(call: Call) -> str:
    """The subject or context that settings apply to; empty for all."""
    return parse_subject(call["subject"]).qualified if "subject" in call.parameters else ""


_config: Routes[RegistryServices] = Routes("Config", "/config", (SUBJECT,))

_mode: Routes[RegistryServices] = Routes("Mode", "/mode", (SUBJECT,))

_compatibility: Routes[RegistryServices] = Routes(
    "Compatibility", "/compatibility/subjects/{subject}/versions", (SUBJECT, VERSION)
)


@_config.on("GET /{subject}", "Show a subject's own settings.", DEFAULT_TO_GLOBAL)
@_config.on("GET", "Show the settings.", DEFAULT_TO_GLOBAL)
async def get_config(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    found = services.registry.state.config(scope)
    if found is None:
        if scope and not call["defaultToGlobal"]:
            raise errors.level_not_configured(scope)
        found = services.registry.state.config_in_scope(scope)
    shown = {key: value for key, value in found.items() if key != "subject"}
    shown.setdefault("compatibilityLevel", services.registry.state.level(scope).value)
    return answer(shown)


@_config.on("PUT /{subject}", "Change a subject's own settings.", body=CONFIG_BODY)
@_config.on("PUT", "Change the settings.", body=CONFIG_BODY)
async def put_config(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    return answer(await services.registry.write(lambda state: set_config(state, scope, call.body)))


@_config.on("DELETE /{subject}", "Delete a subject's own settings.")
@_config.on("DELETE", "Delete the settings.")
async def remove_config(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    return answer(await services.registry.write(lambda state: delete_config(state, scope)))


@_mode.on("GET /{subject}", "Show a subject's own mode.", DEFAULT_TO_GLOBAL)
@_mode.on("GET", "Show the mode.", DEFAULT_TO_GLOBAL)
async def get_mode(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    found = services.registry.state.mode(scope)
    if found is None:
        if scope and not call["defaultToGlobal"]:
            raise errors.mode_not_configured(scope)
        found = services.registry.state.mode_in_scope(scope)
    return answer({"mode": found})


@_mode.on("PUT /{subject}", "Change a subject's own mode.", FORCE, body=MODE_BODY)
@_mode.on("PUT", "Change the mode.", FORCE, body=MODE_BODY)
async def put_mode(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    decide: Callable[..., Decision] = lambda state: set_mode(state, scope, call.body["mode"], force=call["force"])  # noqa: E731
    return answer(await services.registry.write(decide))


@_mode.on("DELETE /{subject}", "Delete a subject's own mode.")
@_mode.on("DELETE", "Delete the mode.")
async def remove_mode(services: RegistryServices, call: Call) -> Response:
    scope = scope_of(call)
    return answer(await services.registry.write(lambda state: delete_mode(state, scope)))


@_compatibility.on(
    "POST /{version}",
    "Check whether a schema is compatible with a given version.",
    NORMALIZE,
    VERBOSE,
    body=SCHEMA_BODY,
)
@_compatibility.on(
    "POST", "Check whether a schema is compatible with a subject's versions.", NORMALIZE, VERBOSE, body=SCHEMA_BODY
)
async def check(services: RegistryServices, call: Call) -> Response:
    subject = parse_subject(call["subject"]).qualified
    against = None
    if "version" in call.parameters:
        number, live = version_number(call["version"]), services.registry.state.live_versions(subject)
        against = live[-1:] if number is None else [schema for schema in live if schema.version == number]
        if number is not None and not against:
            raise errors.version_not_found(number)
    parsed = parse_source(services.registry.state, context_of(subject), source_of(call.body))
    reasons = compatibility_problems(services.registry.state, subject, parsed, against)
    shown: dict[str, object] = {"is_compatible": not reasons}
    if call["verbose"]:
        shown["messages"] = reasons
    return answer(shown)


# Each for all subjects and for one.
routes = [*_config, *_mode, *_compatibility]
