"""Kafka's `sasl.jaas.config`: a Java login module, of which only the options are used here."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD = re.compile(r"\s*([\w.$]+)\s+(?i:required|requisite|sufficient|optional)\s*")
_OPTION = re.compile(r"""([\w.\-@]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"']+)\s*""")
USER_OPTION = "user_"


class InvalidJaas(ValueError):
    """The text cannot be parsed; the message contains the position."""


class Login(NamedTuple):
    """One login module: its Java class, and its options."""

    module: str
    options: dict[str, str]

    @property
    def passwords(self) -> dict[str, str]:
        """The users that a PlainLoginModule of a server names: `user_alice="secret"`."""
        return {
            name.removeprefix(USER_OPTION): value
            for name, value in self.options.items()
            if name.startswith(USER_OPTION)
        }


def parse_jaas(text: str) -> Login:
    """Read one login module; raises InvalidJaas."""
    head = _HEAD.match(text)
    if head is None:
        raise InvalidJaas(
            'a login begins with a class and "required", such as '
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'
        )
    options: dict[str, str] = {}
    position = head.end()
    while position < len(text) and text[position] != ";":
        option = _OPTION.match(text, position)
        if option is None:
            # The text may hold passwords, so the message must not repeat it.
            raise InvalidJaas(f'character {position + 1} begins nothing of the form name="value"')
        options[option[1]] = _unquoted(option[2])
        position = option.end()
    if text[position:].strip() != ";":
        raise InvalidJaas("one login is expected, ended by a semicolon")
    return Login(head[1], options)


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
