"""A cache of schema analyses, for decisions that may not wait.

Theory of operation. Decisions are pure functions of the registry's state, but some need what only a worker can find
out. Such a function looks here. If the analysis is not cached it raises AnalysisMissing; its caller lets a worker
analyze the schema and calls it again. So nothing waits while the registry is being changed, and a slow schema delays
only its own caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.fairness import FairCache
from penstock.gateway.named_limits import higher_limit
from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis import Analysis, AnalysisRequest, Texts
from penstock.gateway.registry.compatibility import Level
from penstock.gateway.registry.schema import SchemaText, SchemaUnusable
from penstock.gateway.web.quotas import CALLER
from penstock.gateway.work.budgets import DEFAULT_BUDGETS, Budgets

# More than the texts of one request may have.
KEPT_BYTES_MAX = 64 * 1024 * 1024
KEPT_MAX = 100_000
# The approximate size of an entry besides its texts.
ENTRY_BYTES = 300


class AnalysisMissing(Exception):
    """A worker must analyze a schema first."""

    def __init__(self, request: AnalysisRequest) -> None:
        super().__init__(request.kind)
        self.request = request


class AnalysisCache:
    """The latest analyses of schemas. Texts that are too long are rejected without an analysis."""

    def __init__(self, budgets: Budgets = DEFAULT_BUDGETS) -> None:
        self.budgets = budgets
        self._answers: FairCache[str, AnalysisRequest, Analysis] = FairCache(KEPT_MAX, KEPT_BYTES_MAX)

    def learn(self, request: AnalysisRequest, analysis: Analysis) -> None:
        """Cache an analysis that was made for the current caller."""
        if request not in self._answers:
            # It is looked up next, so even the largest has to fit.
            self._answers.put(CALLER.get(), request, analysis, min(_size(request, analysis), KEPT_BYTES_MAX))

    def _find(self, request: AnalysisRequest) -> Analysis:
        analysis = self._answers.get(request)
        if analysis is None:
            if request.size > self.budgets.schemas_bytes_max:
                reason = "together with the schemas that it refers to or is compared with, it has more than"
                raise errors.too_laborious(
                    f"{reason} {self.budgets.named('schemas_bytes_max')}", higher_limit("schemas_bytes_max")
                )
            raise AnalysisMissing(request)
        if analysis.unusable is not None:
            raise SchemaUnusable(analysis.unusable)
        return analysis

    def texts(self, schema: SchemaText) -> Texts:
        """A schema's canonical and normalized text."""
        found: Texts = self._find(AnalysisRequest("texts", schema)).found
        return found

    def formatted(self, schema: SchemaText, form: str) -> str:
        """A schema's text in another form."""
        found: str = self._find(AnalysisRequest("form", schema, form)).found
        return found

    def incompatibilities(self, level: Level, schema: SchemaText, older: Sequence[tuple[int, SchemaText]]) -> list[str]:
        """Why a schema may not follow older ones, given as (version, schema), oldest first."""
        if level is Level.NONE or not older:
            return []
        found: list[str] = self._find(AnalysisRequest("reasons", schema, level.value, tuple(older))).found
        return found


class AnalyzedSchema:
    """A schema whose text has been parsed."""

    def __init__(self, analyses: AnalysisCache, text: SchemaText) -> None:
        self._analyses = analyses
        self.text = text
        self.canonical, self.normalized = analyses.texts(text)

    def formatted(self, form: str) -> str:
        """The text in another form of its format; `canonical` for an unknown form."""
        try:
            return self._analyses.formatted(self.text, form)
        except SchemaUnusable as error:
            raise errors.invalid_schema(error) from None


def _size(request: AnalysisRequest, analysis: Analysis) -> int:
    """The approximate memory of an analysis and its request, whose texts are kept with it."""
    found = analysis.found
    texts = [found] if isinstance(found, str) else found or ()
    return ENTRY_BYTES + sum(len(text) for text in texts) + request.size
