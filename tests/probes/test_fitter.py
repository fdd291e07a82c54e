from __future__ import annotations

import pytest

from anchorscope.probes.fitter import MEMORY, layers_at_once


@pytest.mark.parametrize(
    ("samples", "width", "cores", "jobs"),
    [
        (1_000, 576, 2, 2),
        (2_000, 5_120, 16, 16),
        (2_000, 5_120, 64, 16),
        (20_000, 5_120, 64, 1),
        (200_000, 8_192, 2, 1),
    ],
)
def test_so_many_layers_are_fitted_side_by_side_as_the_memory_holds(samples: int, width: int, cores: int, jobs: int):
    assert layers_at_once(samples, width, cores) == jobs
    assert layers_at_once(samples, width, cores, 2 * MEMORY) >= jobs
