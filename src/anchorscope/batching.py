"""Which rows go through the model together: a pure function of their lengths and a budget.

The plan never depends on the machine, on the number of replicas or on memory errors, so the same study gives the
same batches everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def plan_batches(
    lengths: Sequence[int], budget: int, cost: Callable[[int], int] = lambda longest: longest, padding: bool = True
) -> list[list[int]]:
    """Deal rows to batches whose padded size, rows × cost(longest), stays within the budget.

    Rows of similar length go together; a row too long for the budget goes alone. Without padding only rows of equal
    length share a batch.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        # sorted, so this row is the longest of its batch
        fits = (len(current) + 1) * cost(lengths[row]) <= budget
        if current and (not fits or (not padding and lengths[current[0]] != lengths[row])):
            batches.append(current)
            current = []
        current.append(row)
    return [*batches, current] if current else batches
