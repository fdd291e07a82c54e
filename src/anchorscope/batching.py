"""Which rows go through the model together: a pure function of their lengths and a budget.

The plan never depends on the machine, on the number of replicas or on memory errors, so the same study gives the
same batches everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

WASTE = 1.1  # padded tokens to real ones, above which a batch that has enough is closed


def plan_batches(
    lengths: Sequence[int],
    budget: int,
    cost: Callable[[int], int] = lambda longest: longest,
    padding: bool = True,
    enough: int | None = None,
) -> list[list[int]]:
    """Deal rows to batches whose padded size, rows × cost(longest), stays within the budget.

    Rows of similar length go together; a row too long for the budget goes alone. Without padding only rows of equal
    length share a batch. A batch of at least `enough` tokens takes no longer row that would waste more on padding.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        # sorted, so this row is the longest of its batch
        fits = (len(current) + 1) * cost(lengths[row]) <= budget
        unlike = not padding and current and lengths[current[0]] != lengths[row]
        wasteful = (
            enough is not None
            and tokens >= enough
            and (len(current) + 1) * lengths[row] > WASTE * (tokens + lengths[row])
        )
        if current and (not fits or unlike or wasteful):
            batches.append(current)
            current, tokens = [], 0
        current.append(row)
        tokens += lengths[row]
    return [*batches, current] if current else batches
