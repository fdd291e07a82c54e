"""Published models at their real size, on GPUs that are not there; checks/accelerators.py takes all of them."""

from __future__ import annotations

import pytest

from helpers.compiled import NoCompilerError
from helpers.fake import PUBLISHED, fake_gpus, fake_model
from helpers.fake.passes import THROUGH, FakePasses, peak_of, peak_of_answers
from tiny import tiny_tokenizer


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        with fake_gpus():
            pass
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-8b"])
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
def test_traces_go_through_over_two_gpus():
    with fake_gpus():
        THROUGH["traces"](FakePasses(fake_model("qwen3-8b", 2, tiny_tokenizer()), 2))
