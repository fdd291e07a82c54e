"""The passes of the evidence against the slow way: one sample, one condition, one pass, nothing shared."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import anchorscope.traces.stage as stage_module
from anchorscope.answers.answerer import Answerer
from anchorscope.models.load import load_model
from anchorscope.models.prompts import closing_id
from anchorscope.questions.crossed import question_word
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.study.terms import PASSAGE, SUPPORTED, ReadPoint
from anchorscope.traces.activations import Activations, support_name
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.choose import choose
from anchorscope.traces.donors import find_donors
from anchorscope.traces.knockout import Cut
from anchorscope.traces.layout import lay_out
from anchorscope.traces.passes import Passes, further_of
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer, read_plain
from tiny_study import trace_all, write_study

pytestmark = pytest.mark.transformers
SITES = ("attn", "mlp", "resid")
MIRROR = {"mirror_question": (True, False), "mirror_answer": (False, True), "mirror_both": (True, True)}


class Run:
    """A traced set with evidence."""

    def __init__(self, family: str, folder: Path) -> None:
        traces = {"sites": list(SITES), "max_right": 8, "max_wrong": 8, "memory": 0.002}
        self.study = write_study(
            folder, {"tiny": family}, {"north": (40, 60)}, "x{}", traces=traces, evidence={"donors": 2}, shard_rows=64
        )
        spec = self.study.models[0].model_copy(update={"dtype": "float64"})
        self.study = self.study.model_copy(update={"models": [spec]})
        self.model = load_model(spec)
        with Store.writing(folder / "run", self.study) as store:
            trace_all(self.model, store)
        self.store, self.cell = store, store.results("tiny", "north")
        self.chosen = choose(store, "tiny", "north")
        self.samples = list(self.chosen.samples(store, "tiny", "north"))
        self.shared_ids = Answerer(self.model, self.study).prompter.shared_ids
        self.rows = list(Activations(self.cell).table)
        every = read_samples(store, "tiny", "north")
        self.donors = find_donors(every, self.chosen.clusters, len(self.shared_ids), 2, self.study.seed)
        self.closing = closing_id(self.model.tokenizer, "completion")

    def ids(self, sample) -> list[int]:
        return [*self.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids, self.closing]


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def run(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_module, "SHARD_ROWS", 6)
        yield Run(request.param, tmp_path_factory.mktemp(request.param))


def close(run: Run, name: str, position: str, slow: list[dict[str, torch.Tensor]]) -> None:
    stored = Activations(run.cell)
    for site in SITES:
        for layer in range(3):
            wanted = torch.stack([each[site][layer, 0] for each in slow]).numpy()
            found = stored.layer(name, ReadPoint(site, position), layer)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["clean", *MIRROR])
def test_the_mirror_cuts_for_the_token_behind_the_answer_alone(run: Run, name):
    slow = []
    for sample in run.samples:
        ids, spans = run.ids(sample), sample.spans
        last = len(ids) - 1
        question, answer = MIRROR.get(name, (False, False))
        keys = (*(spans.exact_question if question else ()), *(spans.exact_answer if answer else ()))
        by_hand = attention_by_hand(run.model, Cut(keys, (last,) * len(keys)), range(3)) if keys else nullcontext()
        with by_hand:
            slow.append(read_plain(run.model, ids, [last], SITES))
    close(run, name, "after_answer", slow)


@pytest.mark.parametrize("name", ["patched_1", "patched_2", "patched_control"])
def test_a_patched_sample_is_the_sample_with_other_tokens(run: Run, name):
    slow, changed = [], 0
    for sample in run.samples:
        ids = run.ids(sample)
        patch = run.donors[sample.question.id].patches.get(name)
        for place, token in zip(patch.places, patch.ids, strict=True) if patch else ():
            changed += ids[place] != token
            ids[place] = token
        slow.append(read_plain(run.model, ids, [sample.spans.answer_last], SITES))
    close(run, name, "answer_last", slow)
    assert changed > 10 or name == "patched_control"  # the other tokens of these questions are all alike


def test_a_bare_answer_stands_behind_a_bos_alone(run: Run):
    slow = []
    for sample in run.samples:
        first = [run.model.tokenizer.bos_token_id] if run.shared_ids[0] == run.model.tokenizer.bos_token_id else []
        ids = [*first, *sample.answer.answer_ids]
        slow.append(read_plain(run.model, ids, [len(first) + sample.spans.answer_last - sample.spans.answer[0]], SITES))
    close(run, "answer_bare", "answer_last", slow)


@pytest.mark.parametrize("condition", [name for name in SUPPORTED if name not in PASSAGE])
def test_support_is_the_answers_log_probability(run: Run, condition):
    from anchorscope.traces.conditions import CUTS
    from anchorscope.traces.knockout import Knockout

    wanted = []
    for sample in run.samples:
        ids, spans = run.ids(sample)[:-1], sample.spans
        by_hand = nullcontext()
        if condition != "clean":
            by_hand = attention_by_hand(run.model, Knockout(CUTS[condition], "after").cut(spans), range(3))
        with by_hand, torch.inference_mode():
            logits = run.model.network(torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)
        wanted.append(sum(logits[at - 1, ids[at]].item() for at in range(spans.answer[0], spans.answer_last + 1)))
    np.testing.assert_allclose(Activations(run.cell).support(condition), wanted, atol=1e-4)


def test_an_answer_has_a_log_probability_without_its_question(run: Run):
    spec = run.study.traces.model_copy(update={"conditions": ["clean", "knockout", "answer_only"]})
    tracer = Tracer(run.model, run.shared_ids, spec.sites)
    passes = Passes(spec, tracer.shared_ids, tracer.layers, said_under=("answer_only",))
    found = trace_samples(tracer, run.samples, spec, passes)
    assert [name for name in found if name.startswith("support")] == [support_name("answer_only")]
    wanted = []
    for sample in run.samples:
        spans, ids = sample.spans, run.ids(sample)[:-1]
        without = [*ids[: spans.prefix[1]], *ids[spans.cue[0] :]]
        gone = spans.cue[0] - spans.prefix[1]
        with torch.inference_mode():
            logits = run.model.network(torch.tensor([without]), use_cache=False).logits[0].float().log_softmax(-1)
        places = range(spans.answer[0] - gone, spans.answer_last + 1 - gone)
        wanted.append(sum(logits[at - 1, without[at]].item() for at in places))
    np.testing.assert_allclose(found[support_name("answer_only")], wanted, atol=1e-4)


def test_donors_are_alike_and_share_nothing(run: Run):
    every = {sample.question.id: sample for sample in read_samples(run.store, "tiny", "north")}
    blocks: dict[int, set[tuple[str, ...]]] = {}
    for row in run.rows:
        sample = every[row.id]
        assert row.donors == run.donors[row.id].ids
        assert len(row.donors) in (0, 2)
        assert (row.block >= 0) == bool(row.donors)
        for name in row.donors:
            donor = every[name]
            assert donor.question.relation == sample.question.relation
            assert len(donor.spans.exact_question) == len(sample.spans.exact_question)
            assert donor.question.subject_group != sample.question.subject_group
        if row.block >= 0:
            blocks.setdefault(row.block, set()).add(tuple(row.donors))
    assert all(len(donors) == 1 for donors in blocks.values())
    assert sum(bool(row.donors) for row in run.rows) > len(run.rows) / 2


def test_every_distinct_token_and_condition_is_computed_once(run: Run):
    """Donors and the mirror are inside the pass: what is computed is the floor, a token for each that differs."""
    tracer = Tracer(run.model, run.shared_ids, SITES)
    patches = {name: each.patches for name, each in run.donors.items()}
    passes = Passes(run.study.traces, run.shared_ids, tracer.layers, run.study.evidence, run.closing, 0, patches)
    shared = len(run.shared_ids)
    for sample in run.samples:
        streams = passes.streams(sample)
        floor = len(run.ids(sample)) - shared  # the clean pass, to the token behind the answer
        end = sample.spans.answer_last + 1
        for name, stream in zip(passes.names[1:], streams[1:], strict=True):
            if name.startswith("mirror"):
                first, last = sample.spans.after_answer, sample.spans.after_answer + 1
            elif name.startswith("patched"):
                patch = patches[sample.question.id].get(name)
                first, last = min(patch.places) if patch else end - 1, end
            elif name == "answer_bare":
                first, last = sample.spans.answer[0], end
            elif name == "answer_only":
                first, last = sample.spans.cue[0], end
            else:
                first, last = stream.cut.first, end
            floor += last - first
        assert lay_out([streams], shared, 3).counts == (floor,) * 3
    assert set(further_of(run.study.evidence)) < set(passes.names)


def test_question_words():
    assert question_word("In which year did it fall?") == "which"
    assert question_word("How many sides has it?") == "how many"
    assert question_word("Name the river.") == "other"
