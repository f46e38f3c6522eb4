"""Matches topic names against a subscription's pattern, in time linear in the name.

The pattern becomes a small machine whose nodes each take one character, split, or ask for a place. A name is run
through all nodes at once, and sets of nodes that were met before are remembered, which makes a deterministic machine
out of it as it goes. What a pattern may cost is bounded: by `PROGRAM_SIZE_MAX` nodes, and by `STEPS_MAX` visits of
nodes that were not remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.group.subscription.pattern import (
    WORD,
    Anchor,
    AnchorKind,
    Characters,
    Choice,
    InvalidPattern,
    Node,
    Sequence,
    parse_pattern,
)

PROGRAM_SIZE_MAX = 4_000
STATES_MAX = 2_000
STEPS_MAX = 5_000_000

_ACCEPT = 0


class _Take(NamedTuple):
    allowed: frozenset[str]
    next: int


class _Ask(NamedTuple):
    kind: AnchorKind
    next: int


class _Split(NamedTuple):
    options: list[int]


class _State(NamedTuple):
    """Where a name has got to: nodes still to be entered, and what is behind."""

    nodes: frozenset[int]
    after_word: bool
    at_start: bool


class TopicPattern:
    """A compiled pattern. Raises InvalidPattern if it cannot be read, is too large, or has cost too much."""

    def __init__(self, pattern: str) -> None:
        self._program: list[_Take | _Ask | _Split | None] = [None]
        start = self._compile(parse_pattern(pattern), _ACCEPT)
        self._start = _State(frozenset([start]), False, True)
        self._steps: dict[_State, dict[str, _State]] = {}
        self._accepts: dict[_State, bool] = {}
        self._steps_left = STEPS_MAX

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        state = self._start
        for character in name:
            known = self._steps.get(state)
            if known is None:
                if len(self._steps) >= STATES_MAX:
                    self._steps.clear()
                known = self._steps[state] = {}
            following = known.get(character)
            if following is None:
                following = known[character] = self._step(state, character)
            if not following.nodes:
                return False
            state = following
        accepts = self._accepts.get(state)
        if accepts is None:
            if len(self._accepts) >= STATES_MAX:
                self._accepts.clear()
            accepts = self._accepts[state] = _ACCEPT in self._enter(state, None)
        return accepts

    def matching(self, names: Iterable[str]) -> set[str]:
        """Those of the names that match."""
        return {name for name in names if self.matches(name)}

    def _step(self, state: _State, character: str) -> _State:
        following = set()
        for index in self._enter(state, character):
            node = self._program[index]
            if isinstance(node, _Take) and character in node.allowed:
                following.add(node.next)
        return _State(frozenset(following), character in WORD, False)

    def _enter(self, state: _State, character: str | None) -> set[int]:
        """All nodes that are reached before the next character, which is None at the end of a name."""
        before_word = character in WORD
        holds = {
            "start": state.at_start,
            "end": character is None,
            "word": state.after_word != before_word,
            "not word": state.after_word == before_word,
        }
        entered: set[int] = set()
        pending = list(state.nodes)
        while pending:
            index = pending.pop()
            if index in entered:
                continue
            entered.add(index)
            node = self._program[index]
            if isinstance(node, _Split):
                pending += node.options
            elif isinstance(node, _Ask) and holds[node.kind]:
                pending.append(node.next)
        self._steps_left -= len(entered)
        if self._steps_left < 0:
            raise InvalidPattern("it takes too many steps")
        return entered

    def _add(self, node: _Take | _Ask | _Split) -> int:
        if len(self._program) >= PROGRAM_SIZE_MAX:
            raise InvalidPattern(f"it has more than {PROGRAM_SIZE_MAX} parts once its repeats are written out")
        self._program.append(node)
        return len(self._program) - 1

    def _compile(self, node: Node, following: int) -> int:
        """Nodes that match `node` and go on to the node `following`; returns the first of them."""
        if isinstance(node, Characters):
            return self._add(_Take(node.allowed, following))
        if isinstance(node, Anchor):
            return self._add(_Ask(node.kind, following))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self._compile(part, following)
            return following
        if isinstance(node, Choice):
            return self._add(_Split([self._compile(option, following) for option in node.options]))
        end = following
        if node.most is None:
            loop = _Split([following])
            following = end = self._add(loop)
            loop.options.append(self._compile(node.body, end))
        for _ in range((node.most or node.least) - node.least):
            following = self._add(_Split([self._compile(node.body, following), end]))
        for _ in range(node.least):
            following = self._compile(node.body, following)
        return following
