"""What is known about schemas, for decisions that may not wait.

Theory of operation. Decisions are plain functions of the registry's state, but some need what only a worker can find
out. Such a function asks here. If the answer is not known it ends with FactMissing; whoever called it has the question
answered by a worker and calls it again. So nothing waits while the registry is being changed, and a schema that takes
long holds up its own caller alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from penstock.gateway.named_limits import higher_limit
from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis import Answer, Question, Texts
from penstock.gateway.registry.compatibility import Level
from penstock.gateway.registry.schema import SchemaText, SchemaUnusable
from penstock.gateway.work.budgets import DEFAULT_BUDGETS, Budgets

KEPT_BYTES_MAX = 32 * 1024 * 1024
# About what an entry takes besides its texts.
ENTRY_BYTES = 300


class FactMissing(Exception):
    """A worker must answer a question first."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.kind)
        self.question = question


class SchemaFacts:
    """Answers to questions about schemas, the latest ones. Nothing is asked about a text that is too long."""

    def __init__(self, budgets: Budgets = DEFAULT_BUDGETS) -> None:
        self.budgets = budgets
        self._answers: OrderedDict[Question, Answer] = OrderedDict()
        self._size = 0

    def learn(self, question: Question, answer: Answer) -> None:
        """Remember an answer, and forget the oldest where there are too many."""
        if question in self._answers:
            return
        self._answers[question] = answer
        self._size += _size(question, answer)
        while self._size > KEPT_BYTES_MAX and len(self._answers) > 1:
            self._size -= _size(*self._answers.popitem(last=False))

    def _find(self, question: Question) -> Answer:
        answer = self._answers.get(question)
        if answer is None:
            if question.size > self.budgets.schemas_bytes_max:
                reason = "it and the schemas that it refers to or is compared with have together more than"
                raise errors.too_laborious(
                    f"{reason} {self.budgets.named('schemas_bytes_max')}", higher_limit("schemas_bytes_max")
                )
            raise FactMissing(question)
        self._answers.move_to_end(question)
        if answer.unusable is not None:
            raise SchemaUnusable(answer.unusable)
        return answer

    def texts(self, schema: SchemaText) -> Texts:
        """The canonical and the normalized text of a schema."""
        found: Texts = self._find(Question("texts", schema)).found
        return found

    def formatted(self, schema: SchemaText, form: str) -> str:
        """The text of a schema in another form."""
        found: str = self._find(Question("form", schema, form)).found
        return found

    def incompatibilities(self, level: Level, schema: SchemaText, older: Sequence[tuple[int, SchemaText]]) -> list[str]:
        """Why a schema may not follow older ones, given as (version, schema), oldest first."""
        if level is Level.NONE or not older:
            return []
        found: list[str] = self._find(Question("reasons", schema, level.value, tuple(older))).found
        return found


class KnownSchema:
    """A schema whose text has been understood."""

    def __init__(self, facts: SchemaFacts, text: SchemaText) -> None:
        self._facts = facts
        self.text = text
        self.canonical, self.normalized = facts.texts(text)

    def formatted(self, form: str) -> str:
        """The text in another form that the format knows; `canonical` for a form that it does not know."""
        try:
            return self._facts.formatted(self.text, form)
        except SchemaUnusable as error:
            raise errors.invalid_schema(error) from None


def _size(question: Question, answer: Answer) -> int:
    """About how much is kept for an answer; texts of the registry are kept anyway, but others are kept for it."""
    found = answer.found
    texts = [found] if isinstance(found, str) else found or ()
    return ENTRY_BYTES + sum(len(text) for text in texts) + question.size
