"""The OpenAPI 3.1 document of a list of operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Never

from penstock.gateway.web.operations import JSON_TYPE, Operation, json_object

ERROR_SCHEMA = json_object(
    ["error_code", "message"],
    error_code={"type": "integer"},
    message={"type": "string", "description": "What happened, and what to do about it."},
    fix={"type": "string"},
)
REASONS = {200: "Success.", 201: "Created.", 202: "Accepted.", 204: "Success, with no content."}


def document(
    operations: Iterable[Operation[Never]],
    *,
    title: str,
    version: str,
    description: str,
    error_type: str = JSON_TYPE,
) -> dict[str, object]:
    """The content of `/openapi.json`; `error_type` is the media type of errors."""
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, error_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": description},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR_SCHEMA}},
    }


def _describe(operation: Operation[Never], error_type: str) -> dict[str, object]:
    responses: dict[str, object] = {}
    described: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": responses,
    }
    if operation.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.where,
                "description": parameter.description,
                "required": parameter.required,
                "schema": dict(parameter.schema),
            }
            for parameter in operation.parameters
        ]
    if operation.body is not None:
        shape = {"schema": dict(operation.body.schema)} if operation.body.schema is not None else {"schema": {}}
        if operation.body.example is not None:
            shape["example"] = operation.body.example
        types = [kind if kind != "*/*" else "application/octet-stream" for kind in operation.body.media_types]
        described["requestBody"] = {"required": operation.body.required, "content": dict.fromkeys(types, shape)}
    for status, schema in (operation.answers or {200: {}}).items():
        answer: dict[str, object] = {"description": REASONS.get(status, "See the body.")}
        if schema is not None:
            answer["content"] = {operation.answer_type: {"schema": schema}}
        responses[str(status)] = answer
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    responses["default"] = {
        "description": "The request failed; the body contains the reason and what to do.",
        "content": {error_type: error},
    }
    return described
