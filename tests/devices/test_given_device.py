"""Every operation on a device that is really there: `pytest tests/devices/test_given_device.py --device cuda`."""

from __future__ import annotations

import pytest

from anchorscope.models.load import load_model
from anchorscope.study import ModelSpec
from devices.operations import OPERATIONS, Patient, largest_difference
from tiny import FAMILIES, save_tiny

NEAR = 1e-3  # relative: kernels of another device round otherwise


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory):
    device = pytestconfig.getoption("--device")
    if device is None:
        pytest.skip("no --device was given")
    folder = str(save_tiny(request.param, tmp_path_factory.mktemp(request.param)))
    places = (device, "cpu")
    models = [load_model(ModelSpec(id=folder, name="tiny", dtype="float32", device=place)) for place in places]
    return [Patient(model) for model in models]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_gives_what_the_cpu_gives(family, name: str):
    there, here = family
    assert largest_difference(OPERATIONS[name](there), OPERATIONS[name](here)) < NEAR
