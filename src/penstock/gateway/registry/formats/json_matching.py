"""The largest matching between the parts of two combinations in which each old part is compatible with its new one."""

from __future__ import annotations


def matching_size(fitting: list[list[bool]]) -> int:
    """How many rows can be matched with distinct columns, where `fitting[row][column]` allows it."""
    row_of: dict[int, int] = {}

    def assign(row: int, tried: set[int]) -> bool:
        for column, fits in enumerate(fitting[row]):
            if not fits or column in tried:
                continue
            tried.add(column)
            if column not in row_of or assign(row_of[column], tried):
                row_of[column] = row
                return True
        return False

    return sum(assign(row, set()) for row in range(len(fitting)))
