"""Validates values against JSON Schemas. Callers' schemas may take forever to check: for workers only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry as Resources
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

VALIDATORS_KEPT_MAX = 50
# Schema texts by the name that they are referred to by.
Dependencies = Sequence[tuple[str, str]]


def check(text: str, dependencies: Dependencies, value: object) -> str | None:
    """Why a value does not match a schema; None if it does."""
    try:
        error: ValidationError | None = best_match(_validator(text, tuple(dependencies)).iter_errors(value))
    except Unresolvable as failure:
        return f"the schema refers to {failure.ref!r}, which does not exist"
    except re.error as failure:
        return f"the schema has a pattern that is not a valid regular expression: {failure}"
    except RecursionError:
        return "it is nested too deeply"
    return None if error is None else error.message


@lru_cache(VALIDATORS_KEPT_MAX)
def _validator(text: str, dependencies: tuple[tuple[str, str], ...]) -> Any:
    schema = json.loads(text)
    resources: Any = Resources()
    for name, dependency in dependencies:
        contents = json.loads(dependency)
        dialect = contents.get("$schema") if isinstance(contents, dict) else None
        specification = specification_with(dialect, default=DRAFT7) if dialect else DRAFT7
        resources = resources.with_resource(name, specification.create_resource(contents))
    return validator_for(schema, default=jsonschema.Draft7Validator)(schema, registry=resources)
