"""From the name in a client's certificate to a principal, by Kafka's `ssl.principal.mapping.rules`.

Rules are tried in turn: `RULE:pattern/replacement/` with an optional L or U for lower or upper case, or `DEFAULT`,
which takes the whole distinguished name. The first one whose pattern matches the whole name decides.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

RULES_MAX = 100
_RULE = re.compile(r"(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")
_GROUP = re.compile(r"\$(\d)")


class InvalidRules(ValueError):
    """The setting cannot be parsed; the text contains the position."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of one listener, read once."""

    def __init__(self, rules: str) -> None:
        """Raises InvalidRules."""
        self._rules = _read(rules.strip() or "DEFAULT")

    def principal(self, distinguished_name: str) -> str | None:
        """The principal of a certificate's owner; None when no rule matches."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            match = rule.pattern.fullmatch(distinguished_name)
            if match is not None:
                # In one pass: a group's text comes from the certificate, and may look like the name of another group.
                name = _GROUP.sub(partial(_text_of_group, match), rule.replacement)
                return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        return None


def _text_of_group(match: re.Match[str], named: re.Match[str]) -> str:
    return match[int(named[1])] or ""


def _read(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None or len(rules) >= RULES_MAX:
            raise InvalidRules(
                f"cannot read {text[position : position + 40]!r}: write DEFAULT or RULE:pattern/replacement/[LU]"
            )
        if match[1] is None:
            rules.append(_Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(match[1].replace("\\/", "/"))
            except re.error as error:
                raise InvalidRules(f"{match[1]!r} is not a regular expression: {error}") from None
            highest = max((int(number) for number in _GROUP.findall(match[2])), default=0)
            if highest > pattern.groups:
                raise InvalidRules(f"{match[2]!r} names group {highest}, and the pattern has {pattern.groups}")
            rules.append(_Rule(pattern, match[2].replace("\\/", "/"), match[3] or ""))
        position = match.end()
    return rules
