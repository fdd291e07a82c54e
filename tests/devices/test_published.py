"""Published models at their real size, on GPUs that are not there.

`pytest tests/devices -m long` takes all of them, and counts FLOPs: 25 minutes.
"""

from __future__ import annotations

import pytest

from devices.compiled import NoCompilerError
from devices.fake import PUBLISHED, fake_gpus, fake_model
from devices.fake.passes import THROUGH, FakePasses, flops_of, peak_of, peak_of_answers
from tiny import tiny_tokenizer


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        with fake_gpus():
            pass
    except NoCompilerError as error:
        pytest.skip(str(error))


def some_of(names: list[str]) -> list[object]:
    """Every published model, those that are not named as long tests."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.long) for name in PUBLISHED]


@pytest.mark.parametrize("name", some_of(["llama-3.2-1b", "qwen3-8b"]))
def test_the_formula_is_never_below_what_a_batch_takes_and_within_15_percent(name: str):
    with fake_gpus():
        passes = FakePasses(fake_model(name, 1, tiny_tokenizer()))
        assert 1 <= passes.predicted / peak_of(passes)["cuda:0"] <= 1.15
        answered = FakePasses(passes.model, 100, size=PUBLISHED[name].prompt)
        assert 1 <= answered.predicted_of_answers / peak_of_answers(answered)["cuda:0"] <= 1.15


def test_saliency_goes_through_at_real_size():
    with fake_gpus():
        FakePasses(fake_model("llama-3.2-1b", 0, None), 4).saliency()


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")  # accelerate does, to see which weights are shared
@pytest.mark.parametrize("what", THROUGH)
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen3-8b", 2),
        *(pytest.param(name, gpus, marks=pytest.mark.long) for name, gpus in [("qwen3-8b", 4), ("qwen3-32b", 2)]),
    ],
)
def test_passes_go_through_over_several_gpus(name: str, gpus: int, what: str):
    with fake_gpus():
        THROUGH[what](FakePasses(fake_model(name, gpus, tiny_tokenizer()), 2))


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_sweep_takes_hardly_more_flops_than_it_must(name: str):
    with fake_gpus():
        passes = FakePasses(fake_model(name, 1, None), 256, False, PUBLISHED[name].prompt)
        assert 1 <= flops_of(passes.traces) / passes.floor <= 1.05
