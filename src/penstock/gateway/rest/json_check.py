"""Whether a value fits a JSON Schema, without holding up the gateway.

Schemas are written by callers, and their regular expressions may take longer than anybody can wait. Where all of them
are surely quick the value is checked at once; where not, in a process of its own, which is ended when its time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry as Resources
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from penstock.gateway.registry.patterns import is_quick

TIME_S = 3.0
AT_ONCE_MAX = 2
# Texts that others need, by the name they are referred to by.
Dependencies = Sequence[tuple[str, str]]


class JsonChecks:
    """Checks of one gateway; few processes at a time do those that may take long."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def misfit(self, text: str, dependencies: Dependencies, value: Any) -> str | None:
        """Why a value does not fit a schema; None where it does."""
        if _is_quick([text, *(each for _, each in dependencies)], value):
            return check(text, dependencies, value)
        async with self._turns:
            return await _check_elsewhere(text, dependencies, value)


def check(text: str, dependencies: Dependencies, value: Any) -> str | None:
    """The same, here and now."""
    schema = json.loads(text)
    resources: Any = Resources()
    for name, dependency in dependencies:
        contents = json.loads(dependency)
        dialect = contents.get("$schema") if isinstance(contents, dict) else None
        specification = specification_with(dialect, default=DRAFT7) if dialect else DRAFT7
        resources = resources.with_resource(name, specification.create_resource(contents))
    validator = validator_for(schema, default=jsonschema.Draft7Validator)(schema, registry=resources)
    try:
        error: ValidationError | None = best_match(validator.iter_errors(value))
    except Unresolvable as failure:
        return f"the schema refers to {failure.ref!r}, which is not there"
    except re.error as failure:
        return f"the schema has a pattern that is no regular expression: {failure}"
    except RecursionError:
        return "it is nested too deeply"
    return None if error is None else error.message


async def _check_elsewhere(text: str, dependencies: Dependencies, value: Any) -> str | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    question = json.dumps([text, list(dependencies), value]).encode()
    try:
        async with asyncio.timeout(TIME_S):
            answer, _ = await process.communicate(question)
        why: str | None = json.loads(answer)
        return why
    except TimeoutError:
        return f"to check it against the schema's patterns takes more than {TIME_S:g} s"
    except ValueError:
        return "it could not be checked"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _is_quick(texts: Sequence[str], value: Any) -> bool:
    longest = max((len(each) for each in _texts(value)), default=0)
    return all(is_quick(pattern, longest) for text in texts for pattern in _patterns(json.loads(text)))


def _patterns(place: Any) -> Iterator[str]:
    """Everything in a schema that may be used as a regular expression."""
    waiting = [place]
    while waiting:
        place = waiting.pop()
        if isinstance(place, dict):
            if isinstance(place.get("pattern"), str):
                yield place["pattern"]
            if isinstance(place.get("patternProperties"), dict):
                yield from place["patternProperties"]
            waiting += place.values()
        elif isinstance(place, list):
            waiting += place


def _texts(place: Any) -> Iterator[str]:
    """All texts in a value, names of properties too."""
    waiting = [place]
    while waiting:
        place = waiting.pop()
        if isinstance(place, str):
            yield place
        elif isinstance(place, dict):
            yield from place
            waiting += place.values()
        elif isinstance(place, list):
            waiting += place


def main() -> None:
    """Answer one question from the standard input."""
    text, dependencies, value = json.load(sys.stdin)
    json.dump(check(text, [(name, each) for name, each in dependencies], value), sys.stdout)


if __name__ == "__main__":
    main()
