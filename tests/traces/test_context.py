"""Cuts of a passage against attention written out by hand, in every family, and what has to be computed for them."""

from __future__ import annotations

import pytest

from anchorscope.spans.samples import Sample
from anchorscope.study import TraceSpec
from anchorscope.study.terms import PASSAGE
from anchorscope.traces.passes import Passes
from cut_passages import differences_by_hand, samples_of
from tiny import FAMILIES, exactness, load_tiny

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("family", FAMILIES)
def test_cut_passages_equal_attention_by_hand(family: str, tmp_path):
    model = load_tiny(family, tmp_path, "float64")
    assert differences_by_hand(model) < exactness(model)


def test_the_passage_is_not_computed_again_where_nobody_sees_it(tmp_path):
    model = load_tiny("llama", tmp_path, "float32")
    prompter, samples = samples_of(model)
    passes = Passes(TraceSpec(conditions=["clean", "knockout", *PASSAGE]), prompter.shared_ids, 3)
    for sample in samples:
        by_name = dict(zip(passes.names, passes.streams(sample), strict=True))
        behind = sample.spans.answer_last + 1 - sample.spans.context[1]
        assert len(by_name["knockout_context"].ids) == len(by_name["knockout_both"].ids) == behind
        assert len(by_name["clean"].ids) == behind + sample.spans.context[1] - len(prompter.shared_ids)


def test_evidence_is_the_sentence_that_holds_an_answer(tmp_path):
    model = load_tiny("llama", tmp_path, "float32")
    prompter, samples = samples_of(model)

    def text(sample: Sample, places: list[int]) -> str:
        ids = [*prompter.shared_ids, *sample.answer.prompt_ids]
        return model.tokenizer.decode([ids[place] for place in places]).strip()

    assert [text(sample, sample.spans.evidence) for sample in samples] == [
        "The Danube is near Hill.",
        "Ann did not.",
        "",
    ]
    for sample in samples:
        spans = sample.spans
        assert not set(spans.evidence) & set(spans.control_evidence_control)
        assert len(spans.control_evidence_exact) == len(spans.control_evidence_control) <= len(spans.evidence)
        assert set(spans.control_evidence_control) <= set(range(*spans.context))
    assert samples[2].spans.control_evidence_exact == []
