"""One question and answer in a notebook: what it prints and draws, and its numbers against the slow way."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import anchorscope
from anchorscope import AnchorscopeError, Asked, PromptSpec
from anchorscope.doors import ArgumentError
from anchorscope.errors import ModelError, ProbeError, StoreError
from anchorscope.models.load import load_model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.probe import load_probes
from anchorscope.report.draw.sample import BARS
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.tracer import read_plain
from filling import write_readouts
from tiny_study import trace_all, write_study

QUESTION, ANSWER = "Which river is near the <old> tower?", "the Danube"
PROMPT = PromptSpec(shots=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with probes for two sets; its prompt has one solved question, not four, and it cuts into the answer."""
    folder = tmp_path_factory.mktemp("study")
    probes = {"repeats": 2, "folds": 2, "strengths": [0.1], "resamples": 100}
    traces = {"conditions": ["clean", "knockout"], "into": "answer"}
    sets = {"north": (8, 8), "south": (9, 9)}
    study = write_study(folder, {"tiny": "llama"}, sets, probes=probes, traces=traces)
    with Store.writing(folder / "run", study) as store:
        trace_all(load_model(study.models[0]), store)
        for name in sets:
            write_readouts(store, "tiny", name, ReadPoint("mlp", "answer_last"))
    return folder / "run"


@pytest.fixture(scope="module")
def model(run: Path):
    return load_model(Store.open(run).study.models[0])


@pytest.fixture(scope="module")
def traced(model):
    return anchorscope.trace(model, QUESTION, f" {ANSWER} ", prompt=PROMPT)


def slowly(model, traced, condition, into="after", site="mlp", position="answer_last") -> np.ndarray:
    """(layer, width)"""
    spans = traced.spans
    prompt = Prompter(model.tokenizer, PROMPT, model.wants_bos)(QUESTION)
    ids = [*prompt.ids, *model.tokenizer(f" {ANSWER}", add_special_tokens=False).input_ids]
    place, by_hand = getattr(spans, position), nullcontext()
    if condition == "answer_only":
        to_end = len(ids) - place
        ids = ids[: spans.prefix[1]] + ids[spans.cue[0] :]
        place = len(ids) - to_end
    elif condition != "clean":
        by_hand = attention_by_hand(model, Knockout(CUTS[condition], into).cut(spans), range(3))
    with by_hand:
        return read_plain(model, ids, [place], [site])[site][:, 0].double().numpy()


def test_the_exact_tokens_are_marked(traced):
    text = str(traced).splitlines()
    assert "".join(traced.tokens).endswith(f"{QUESTION}\nA: {ANSWER}")
    marked = str(traced).split("[exact question tokens]")[0]
    said = "".join(re.findall(r"\[([^\]]*)\]", marked))
    for word in ("river", "near", "old", "tower"):
        assert (word in said) == (word != "near")  # a preposition is no core element
    assert marked.count("[") == len(traced.spans.exact_question)
    answer = marked[marked.index("A:") :]
    assert "".join(re.findall(r"<([^>]*)>", answer)).strip() == "Danube"
    assert "distance from the clean state by layer, mlp at answer_last" in text


def test_every_condition_has_a_line_of_bars(traced):
    lines = [line for line in str(traced).splitlines() if line.startswith("  ")]
    assert [line[2:19].strip() for line in lines] == ["knockout", "control question", "control random", "answer only"]
    for line in lines:
        bars = line[20:23]
        assert set(bars) <= set(BARS)
    highest = max(traced.curves, key=lambda condition: traced.curves[condition].max())
    assert "█" in next(line for line in lines if line[2:19].strip() == highest.replace("_", " "))


def test_two_controls_that_cut_the_same_tokens_are_one_line_and_say_so(traced):
    spans = traced.spans
    same = replace(spans, control_random_control=spans.control_question_control)
    shown = str(replace(traced, spans=same))
    assert "both controls" in shown
    assert "(they cut the same tokens here)" in shown
    assert "control random" not in shown
    assert "both controls" not in str(traced)
    labels = [line.get_label() for line in replace(traced, spans=same).draw().axes[0].lines]
    assert labels == ["knockout", "both controls", "answer only"]


def test_distances_are_those_of_slow_passes(model, traced):
    clean = slowly(model, traced, "clean")
    for condition, curve in traced.curves.items():
        moved = slowly(model, traced, condition) - clean
        expected = [np.linalg.norm(moved[i]) / np.linalg.norm(clean[i]) for i in range(3)]
        np.testing.assert_allclose(curve, expected, rtol=1e-3, atol=1e-5)
        assert curve.max() > 0.01


def test_it_draws_and_shows_itself_in_a_notebook(traced):
    figure = traced.draw()
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert axes.get_ylabel() == traced.measure == "distance from the clean state"
    assert [line.get_label() for line in axes.lines] == [name.replace("_", " ") for name in traced.curves]
    for line, curve in zip(axes.lines, traced.curves.values(), strict=True):
        assert np.array_equal(line.get_ydata(), curve)
    shown = traced._repr_html_()
    assert shown.count("<svg") == shown.count("</svg>") == 1
    words = shown[: shown.index("<svg")]
    said = html.unescape(re.sub(r"<[^>]*>", "", words))
    assert said == "".join(traced.tokens).strip()  # what a question says is text, not markup
    assert words.count("<b ") == len(traced.spans.exact_question) + len(traced.spans.exact_answer)
    assert "<?xml" not in shown


def test_with_a_run_the_curves_are_its_probes_applied_by_hand(model, run: Path, traced):
    """The run's own prompt and cut are taken: its probes know the states of no other."""
    for dataset in ("north", "south"):
        found = anchorscope.trace(model, QUESTION, ANSWER, run=run, dataset=dataset)
        assert found.probed
        assert found.measure == "P(correct)"
        assert list(found.curves) == ["clean", "knockout", "control_question", "control_random", "answer_only"]
        layers, _ = load_probes(run / "tiny" / dataset / "probes" / "mlp-answer_last")
        for condition, curve in found.curves.items():
            states = slowly(model, traced, condition, into="answer")
            for layer, probes in enumerate(layers):
                logits = [
                    states[layer] @ probes.weight[repeat, fold, 0] + probes.bias[repeat, fold, 0]
                    for repeat in range(2)
                    for fold in range(2)
                ]
                assert curve[layer] == pytest.approx(1 / (1 + np.exp(-np.mean(logits))), abs=1e-4)
        assert found.draw().axes[0].get_ylim() == (0, 1)


def test_a_model_is_known_to_a_run_by_its_name_or_by_where_it_came_from(model, run: Path):
    place = {"run": str(run), "dataset": "north"}
    expected = anchorscope.trace(model, QUESTION, ANSWER, **place).curves["knockout"]
    renamed = replace(model, spec=model.spec.model_copy(update={"name": "other"}))
    assert np.array_equal(anchorscope.trace(renamed, QUESTION, ANSWER, **place).curves["knockout"], expected)
    unknown = replace(model, spec=model.spec.model_copy(update={"name": "other", "id": "else/where"}))
    with pytest.raises(ProbeError, match="no model other") as failure:
        anchorscope.trace(unknown, QUESTION, ANSWER, **place)
    assert "It has: tiny" in str(failure.value.hint)


def test_options_reach_the_pass(model, traced):
    other = anchorscope.trace(
        model, QUESTION, ANSWER, prompt=PROMPT, site="resid", position="final", into="answer", conditions=["knockout"]
    )
    assert list(other.curves) == ["knockout"]
    clean = slowly(model, traced, "clean", site="resid", position="final")
    cut = slowly(model, traced, "knockout", "answer", "resid", "final")
    expected = np.linalg.norm(cut - clean, axis=1) / np.linalg.norm(clean, axis=1)
    np.testing.assert_allclose(other.curves["knockout"], expected, rtol=1e-3, atol=1e-5)


def test_a_model_may_be_a_folder(run: Path, traced):
    folder = Store.open(run).study.models[0].id
    found = anchorscope.trace(folder, QUESTION, ANSWER, prompt=PROMPT)  # in the dtype that is fast here
    for condition, curve in traced.curves.items():
        np.testing.assert_allclose(found.curves[condition], curve, rtol=0.2, atol=0.05)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"site": "residual"}, r"site: 'residual' is not possible; did you mean 'resid'"),
        ({"into": "answr"}, r"into: 'answr' is not possible; did you mean 'answer'"),
        ({"conditions": ["knokout"]}, r"conditions: 'knokout' is not possible; did you mean 'knockout'"),
        ({"position": "anwser_last"}, r"position: 'anwser_last' is not possible; did you mean 'answer_last'"),
        ({"position": 999}, "position: there is no token 999"),
        ({"exact_question": "Seine"}, "exact_question: 'Seine' does not stand in it"),
    ],
)
def test_a_mistyped_word_is_refused_before_anything_is_computed(model, option, words):
    with pytest.raises(AnchorscopeError, match=words):
        anchorscope.trace(model, QUESTION, ANSWER, **option)


def test_exact_tokens_by_hand_and_any_place(model):
    """Read in the question, where the answer alone has no token; cut what was marked."""
    marks = {"exact_question": "river", "exact_answer": "the"}
    found = anchorscope.trace(model, QUESTION, ANSWER, prompt=PROMPT, **marks, position=-3)
    tokens = anchorscope.tokens(model, Asked(QUESTION, ANSWER, PROMPT))
    assert "".join(tokens[place] for place in found.spans.exact_question).strip() == "river"
    assert "".join(tokens[place] for place in found.spans.exact_answer).strip() == "the"
    place = len(tokens) - 3
    prompt = Prompter(model.tokenizer, PROMPT, model.wants_bos)(QUESTION)
    ids = [*prompt.ids, *model.tokenizer(f" {ANSWER}", add_special_tokens=False).input_ids]
    clean = read_plain(model, ids, [place], ["mlp"])["mlp"][:, 0].double().numpy()
    with attention_by_hand(model, Knockout().cut(found.spans), range(3)):
        cut = read_plain(model, ids, [place], ["mlp"])["mlp"][:, 0].double().numpy()
    expected = np.linalg.norm(cut - clean, axis=1) / np.linalg.norm(clean, axis=1)
    np.testing.assert_allclose(found.curves["knockout"], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.states["knockout"], cut, atol=1e-4)

    early = found.spans.exact_question[0] + 1
    without = anchorscope.trace(model, QUESTION, ANSWER, prompt=PROMPT, **marks, position=early)
    assert "answer_only" not in without.curves
    with pytest.raises(ModelError, match="answer_only is not possible, because the token that is read is in"):
        anchorscope.trace(model, QUESTION, ANSWER, prompt=PROMPT, position=early, conditions=["answer_only"])
    alone = anchorscope.trace(model, QUESTION, ANSWER, prompt=PROMPT, exact_question=QUESTION)
    assert "control_question" not in alone.curves
    with pytest.raises(ModelError, match="control_question is not possible, because this sample has no tokens for it"):
        anchorscope.trace(
            model, QUESTION, ANSWER, prompt=PROMPT, exact_question=QUESTION, conditions=["control_question"]
        )


def test_a_figure_shows_itself_and_can_be_drawn_on_axes_of_ones_own(traced):
    png = traced.draw()._repr_png_()
    assert png.startswith(b"\x89PNG")
    own = Figure()
    left, right = own.subplots(1, 2)
    assert traced.draw(left) is own
    assert len(left.lines) == len(traced.curves)
    assert not right.lines
    assert all(float(tick).is_integer() for tick in left.get_xticks())


def test_what_cannot_be_traced_is_said(model, run: Path, tmp_path: Path):
    with pytest.raises(ProbeError, match=r"no probes of tiny for attn at answer_last") as failure:
        anchorscope.trace(model, QUESTION, ANSWER, run=run, site="attn")
    assert "anchorscope run STUDY" in str(failure.value.hint)
    with pytest.raises(ProbeError, match="on west"):
        anchorscope.trace(model, QUESTION, ANSWER, run=run, dataset="west")
    with pytest.raises(ProbeError, match="probes of several datasets") as failure:
        anchorscope.trace(model, QUESTION, ANSWER, run=run)
    assert "north, south" in str(failure.value.hint)
    with pytest.raises(StoreError, match="is not a run"):
        anchorscope.trace(model, QUESTION, ANSWER, run=tmp_path)
    with pytest.raises(ArgumentError, match="answer is empty"):
        anchorscope.trace(model, QUESTION, "  ")


def test_the_package_starts_without_torch():
    code = "import sys, anchorscope; anchorscope.Study; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
