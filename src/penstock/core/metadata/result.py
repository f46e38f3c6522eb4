"""What a controller decision is: records to commit, and the answer to give once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

Response = TypeVar("Response")


class Result(NamedTuple, Generic[Response]):
    """Records first, response after: nobody hears of a change that could still be lost."""

    records: Sequence[Any]
    response: Response
