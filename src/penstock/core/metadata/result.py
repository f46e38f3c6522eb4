"""A controller decision: the records to commit, and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Response = TypeVar("Response")


class Result(NamedTuple, Generic[Response]):
    """Records and response: the response is only sent when the records can no longer be lost."""

    records: Sequence[object]
    response: Response
