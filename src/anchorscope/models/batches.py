"""Which rows go through the model together: a pure function of their lengths and a budget.

The plan never depends on the machine, on the number of replicas or on memory errors, so the same study gives the
same batches everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def plan_batches(
    lengths: Sequence[int],
    budget: int,
    cost: Callable[[int], int] = lambda longest: longest,
    padding: bool = True,
    enough: int | None = None,
) -> list[list[int]]:
    """Deal rows to batches whose padded size, rows × cost(longest), stays within the budget.

    Rows of similar length go together; a row too long for the budget goes alone. Without padding only rows of equal
    length share a batch. With `enough`, a batch takes no more tokens than that, unless one row alone has more.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        # sorted, so this row is the longest of its batch
        fits = (len(current) + 1) * cost(lengths[row]) <= budget
        unlike = not padding and current and lengths[current[0]] != lengths[row]
        full = enough is not None and tokens + lengths[row] > enough
        if current and (not fits or unlike or full):
            batches.append(current)
            current, tokens = [], 0
        current.append(row)
        tokens += lengths[row]
    return [*batches, current] if current else batches
