"""Reads the patterns that consumers subscribe with: RE2's syntax, over the characters a topic's name may have.

Kafka uses RE2/J, whose patterns never take more than linear time. Python's `re` takes patterns that RE2 refuses
(look-around, back-references) and may run for ever on others, so that a client could stop the coordinator with one.
Hence a reader of our own. Names of topics are made of 65 characters: a character class is simply a set of some of them.

Read: literals, escapes, classes with ranges, Perl's and POSIX classes, Unicode categories by their letters, groups
(named or not), flags, alternatives, repeats up to 1,000 times, and the anchors ^ $ \\A \\z \\b \\B. Flags other than
`i` make no difference for names, which have no newlines and are matched as a whole. Not read: Unicode scripts.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Literal, NamedTuple

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
WORD = frozenset(string.ascii_letters + string.digits + "_")

PATTERN_LENGTH_MAX = 4_096
REPEAT_MAX = 1_000
NESTING_MAX = 200

AnchorKind = Literal["start", "end", "word", "not word"]


class InvalidPattern(ValueError):
    """A pattern that cannot be read, or that asks for too much; the text says where and why."""


class Characters(NamedTuple):
    """Any one of some characters."""

    allowed: frozenset[str]


class Anchor(NamedTuple):
    """A place between characters."""

    kind: AnchorKind


class Sequence(NamedTuple):
    """One after the other."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """Any of several."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """Something at least `least` times, and at most `most` times unless that is None."""

    body: Node
    least: int
    most: int | None


Node = Characters | Anchor | Sequence | Choice | Repeat

_PERL = {"d": frozenset(string.digits), "w": WORD, "s": frozenset("\t\n\f\r ")}
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": "\t\n\v\f\r ",
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANCHORS: dict[str, AnchorKind] = {"A": "start", "z": "end", "b": "word", "B": "not word"}
_CATEGORIES = ("L", "M", "N", "P", "S", "Z", "C")


def parse_pattern(pattern: str) -> Node:
    """The pattern as a tree; raises InvalidPattern for one that RE2 would not take either, or that is too long."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"it has {len(pattern)} characters, more than {PATTERN_LENGTH_MAX}")
    reader = _Reader(pattern)
    node = reader.choice(ignore_case=False, depth=0)
    if reader.rest():
        raise InvalidPattern(f"unexpected ) at position {reader.position}")
    return node


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0

    def rest(self) -> str:
        return self.pattern[self.position :]

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.position)

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.position += len(text)
            return True
        return False

    def take(self) -> str:
        if self.position == len(self.pattern):
            raise InvalidPattern("it ends in the middle of something")
        self.position += 1
        return self.pattern[self.position - 1]

    def take_until(self, end: str) -> str:
        found = self.pattern.find(end, self.position)
        if found < 0:
            raise InvalidPattern(f"missing {end} after position {self.position}")
        text = self.pattern[self.position : found]
        self.position = found + len(end)
        return text

    def choice(self, ignore_case: bool, depth: int) -> Node:
        """Alternatives up to the end or a closing parenthesis, which stays; flags set inside hold to there."""
        if depth > NESTING_MAX:
            raise InvalidPattern(f"groups are nested more than {NESTING_MAX} deep")
        options: list[Node] = []
        parts: list[Node] = []
        repeatable = False
        while self.position < len(self.pattern) and not self.peek(")"):
            if self.accept("|"):
                options.append(Sequence(tuple(parts)))
                parts, repeatable = [], False
                continue
            repeat = self.repeat()
            if repeat is not None:
                if not repeatable:
                    raise InvalidPattern(f"nothing to repeat before position {self.position}")
                parts[-1] = Repeat(parts[-1], *repeat)
                repeatable = False
                continue
            flags = self.flags(ignore_case)
            if flags is not None:
                ignore_case = flags
                repeatable = False
                continue
            atom = self.atom(ignore_case, depth)
            parts.append(atom)
            repeatable = bool(atom != Sequence(()) or self.pattern[self.position - 1] == ")")
        options.append(Sequence(tuple(parts)))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def repeat(self) -> tuple[int, int | None] | None:
        """A repeat operator, if one comes; a brace that starts none is a literal."""
        found: tuple[int, int | None] | None = None
        if self.accept("*"):
            found = (0, None)
        elif self.accept("+"):
            found = (1, None)
        elif self.accept("?"):
            found = (0, 1)
        elif self.peek("{"):
            found = self._counted()
        if found is not None:
            # Whether a repeat takes as much or as little as it can does not change what matches as a whole.
            self.accept("?")
        return found

    def _counted(self) -> tuple[int, int | None] | None:
        end = self.pattern.find("}", self.position)
        least, comma, most = self.pattern[self.position + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        bounds = (int(least), int(most) if most else None if comma else int(least))
        if max(bounds[0], bounds[1] or 0) > REPEAT_MAX or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise InvalidPattern(f"bad repeat {{{least}{comma}{most}}} at position {self.position}")
        self.position = end + 1
        return bounds

    def flags(self, ignore_case: bool) -> bool | None:
        """Flags for the rest of the group, such as (?i), if they come; whether case is ignored from here on."""
        end = self.pattern.find(")", self.position)
        if not self.peek("(?") or end < 0:
            return None
        letters = self.pattern[self.position + 2 : end]
        if not letters or set(letters) - set("imsU-"):
            return None
        self.position = end + 1
        return _flagged(letters, ignore_case)

    def atom(self, ignore_case: bool, depth: int) -> Node:
        character = self.take()
        if character == "(":
            return self._group(ignore_case, depth)
        if character == "[":
            return Characters(_folded(self._class(), ignore_case))
        if character == ".":
            return Characters(ALPHABET)
        if character == "^":
            return Anchor("start")
        if character == "$":
            return Anchor("end")
        if character == "\\":
            return self._escape(ignore_case)
        return Characters(_folded(frozenset(character), ignore_case))

    def _group(self, ignore_case: bool, depth: int) -> Node:
        start = self.position
        if self.accept("?"):
            if self.accept("P<") or (self.peek("<") and not self.peek("<=") and not self.peek("<!")):
                self.accept("<")
                name = self.take_until(">")
                if not name.isidentifier():
                    raise InvalidPattern(f"bad name {name!r} of a group at position {start}")
            else:
                letters = self.take_until(":") if ":" in self.rest() else ""
                if set(letters) - set("imsU-") or self.pattern[self.position - 1] != ":":
                    raise InvalidPattern(f"(? at position {start - 1} starts nothing that is supported")
                ignore_case = _flagged(letters, ignore_case)
        body = self.choice(ignore_case, depth + 1)
        if not self.accept(")"):
            raise InvalidPattern(f"missing ) for the group at position {start - 1}")
        return body

    def _escape(self, ignore_case: bool) -> Node:
        letter = self.take()
        if letter in _ANCHORS:
            return Anchor(_ANCHORS[letter])
        if letter == "Q":
            text = self.take_until("\\E") if "\\E" in self.rest() else self.rest()
            self.position = self.position if self.pattern[: self.position].endswith("\\E") else len(self.pattern)
            return Sequence(tuple(Characters(_folded(frozenset(c), ignore_case)) for c in text))
        return Characters(_folded(self._escaped_set(letter), ignore_case))

    def _escaped_set(self, letter: str) -> frozenset[str]:
        """What an escape stands for, inside or outside brackets."""
        if letter.lower() in _PERL:
            found = _PERL[letter.lower()]
            return found if letter.islower() else ALPHABET - found
        if letter in "pP":
            return self._category(negated=letter == "P")
        if letter in _CONTROL:
            return frozenset(_CONTROL[letter])
        if letter == "x":
            digits = self.take_until("}") if self.accept("{") else self.take() + self.take()
            if not digits or set(digits) - set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise InvalidPattern(f"bad escape \\x{digits} before position {self.position}")
            return frozenset(chr(int(digits, 16)))
        if letter.isascii() and letter.isalnum():
            raise InvalidPattern(f"\\{letter} at position {self.position - 2} is not supported")
        return frozenset(letter)

    def _category(self, negated: bool) -> frozenset[str]:
        name = self.take_until("}") if self.accept("{") else self.take()
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        if not name.startswith(_CATEGORIES) or len(name) > 2:
            raise InvalidPattern(f"unknown class \\p{{{name}}} before position {self.position}")
        found = frozenset(c for c in ALPHABET if unicodedata.category(c).startswith(name))
        return ALPHABET - found if negated else found

    def _class(self) -> frozenset[str]:
        start = self.position
        negated = self.accept("^")
        found: set[str] = set()
        first = True
        while first or not self.accept("]"):
            if self.position == len(self.pattern):
                raise InvalidPattern(f"missing ] for the class at position {start - 1}")
            first = False
            low = self._class_item()
            if len(low) == 1 and self.peek("-") and not self.peek("-]"):
                self.take()
                high = self._class_item()
                if len(high) != 1 or min(high) < min(low):
                    raise InvalidPattern(f"bad range in the class at position {start - 1}")
                found |= {c for c in ALPHABET if min(low) <= c <= min(high)}
            else:
                found |= low
        return ALPHABET - found if negated else frozenset(found)

    def _class_item(self) -> frozenset[str]:
        if self.accept("[:"):
            name = self.take_until(":]")
            if name.lstrip("^") not in _POSIX:
                raise InvalidPattern(f"unknown class [:{name}:] before position {self.position}")
            found = frozenset(_POSIX[name.lstrip("^")])
            return ALPHABET - found if name.startswith("^") else found
        character = self.take()
        return self._escaped_set(self.take()) if character == "\\" else frozenset(character)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 8


def _flagged(letters: str, ignore_case: bool) -> bool:
    on, _, off = letters.partition("-")
    return ("i" in on or ignore_case) and "i" not in off


def _folded(characters: frozenset[str], ignore_case: bool) -> frozenset[str]:
    if ignore_case:
        characters |= {c.swapcase() for c in characters}
    return characters & ALPHABET
