"""A detector from a run of tiny models to verdicts: read as in a run, saved and loaded, and who is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import anchorscope
from anchorscope.answers.answer_lines import AnswerLine
from anchorscope.answers.answerer import Answerer
from anchorscope.api.detectors import compare_run, fit_run, prepare
from anchorscope.cli import app
from anchorscope.detectors.answers_file import _own_answers
from anchorscope.detectors.crossfit import pooled
from anchorscope.detectors.inputs import PASSAGE, Inputs
from anchorscope.detectors.reader import ABSTENTION, Reader
from anchorscope.detectors.record import DETECTORS, AnswerMean, Comparison, EvalPlan
from anchorscope.detectors.scored import read_comparison
from anchorscope.detectors.session import Detector, Session, refused
from anchorscope.detectors.tables import read_labelled
from anchorscope.detectors.thresholds import parse_promise
from anchorscope.errors import AnchorscopeError, DetectorError, StoreError
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.logistic import fit_temperature
from anchorscope.progress import silent
from anchorscope.report.page.render import detected
from anchorscope.run.pipeline import Pipeline
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Kind, Plan, Store
from anchorscope.store.checksums import with_checksum, without_checksum
from anchorscope.study import PromptSpec
from anchorscope.study.terms import StateName
from anchorscope.traces.record import TRACES
from anchorscope.traces.tracer import read_plain
from conftest import write_jsonl
from filling import write_traces
from tiny import load_tiny
from tiny_study import write_samples, write_study

SET = "north"
CLEAN, MEAN = (StateName("clean", "mlp", position) for position in ("answer_last", "answer_mean"))
CUT = StateName("knockout", "mlp", "answer_last")


@dataclass(frozen=True)
class Made:
    """A run that was traced, and its model."""

    folder: Path
    store: Store
    model: Model
    answerer: Answerer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("detect")
    traces = {"conditions": ["clean", "knockout", "answer_only"], "attention_samples": 0, "sites": ["mlp", "resid"]}
    study = write_study(folder, {"one": "llama"}, {SET: (45, 60)}, traces=traces)
    with Store.writing(folder / "run", study) as store:
        for spec in study.models:
            model = load_model(spec)
            answerer = write_samples(model, store)
            write_traces(model, answerer.prompter, SET, store)
        prepare(Pipeline(store), EvalPlan(), ["one"], [SET])
    first = load_model(study.models[0])
    return Made(folder, Store.open(folder / "run"), first, Answerer(first, study))


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    shutil.copytree(made.folder / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def samples(made: Made) -> list[Sample]:
    ids = {row.id for row in made.store.results("one", SET).table(TRACES)}
    return [each for each in read_samples(made.store, "one", SET) if each.question.id in ids]


@pytest.fixture(scope="module")
def stack(made: Made) -> Detector:
    return fit_run(made.store, "one", [SET], "stack", parse_promise("30% false alarms"))


@pytest.fixture(scope="module")
def combined(made: Made) -> Detector:
    return fit_run(made.store, "one", [SET], "combined")


def test_too_few_answers_are_refused_before_a_model_is_loaded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anchorscope.detectors.fit.FEWEST_RIGHT", 10_000)
    monkeypatch.setattr("anchorscope.api.detectors.Pipeline", None)
    with pytest.raises(DetectorError, match="too few to fit a detector"):
        fit_run(made.store, "one", [SET], "stack")


def whole(made: Made, sample: Sample) -> list[int]:
    return [*made.answerer.prompter.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]


def test_means_over_the_answer_are_what_plain_passes_give(made: Made, samples: list[Sample]) -> None:
    inputs = read_labelled(made.store, "one", SET).inputs
    for i in (0, 7, 40):
        sample = samples[i]
        ids, (start, end) = whole(made, sample), sample.spans.answer
        mean = read_plain(made.model, ids, list(range(start, end)), ["mlp"])["mlp"].mean(dim=1).numpy()
        got = np.stack([inputs.state(MEAN).layer(k)[i] for k in range(len(mean))])
        np.testing.assert_allclose(got, mean, atol=1e-5)


@pytest.mark.parametrize("names", [[CUT], [CLEAN, CUT], [MEAN, CLEAN, CUT]])
def test_states_are_read_as_in_the_run(names: list[StateName], made: Made, samples: list[Sample]) -> None:
    """Also where the knockout is read alone, and computes its own prefix."""
    known = read_labelled(made.store, "one", SET).inputs
    read = Reader(made.model, made.answerer.prompter).read(samples[:20], names)
    assert set(read) == set(names)
    for name, states in read.items():
        wanted = np.stack([known.state(name).layer(layer)[:20] for layer in range(len(states))])
        np.testing.assert_allclose(states.numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["stack", "combined"])
def test_given_answers_are_read_as_in_the_run(
    kind: str, made: Made, samples: list[Sample], request: pytest.FixtureRequest
) -> None:
    detector: Detector = request.getfixturevalue(kind)
    known = read_labelled(made.store, "one", SET).inputs
    plain = [i for i, each in enumerate(samples) if each.answer.context is None][:20]
    questions = [samples[i].question.question for i in plain]
    answers = [samples[i].answer.answer for i in plain]
    verdicts = detector.score(made.model, questions, answers)
    expected = detector.logits(known.of(np.array(plain)))
    scored = [each.score for each in verdicts if each.score is not None]
    wanted = [value for each, value in zip(verdicts, expected, strict=True) if each.score is not None]
    assert len(scored) > 10
    np.testing.assert_allclose(scored, wanted, atol=2e-3)


@pytest.mark.parametrize(("kind", "route"), [("stack", True), ("combined", False)])
def test_what_is_said_while_answering_is_what_is_said_of_the_answer(
    kind: str, route: bool, made: Made, request: pytest.FixtureRequest
) -> None:
    detector: Detector = request.getfixturevalue(kind)
    questions = [f"Which river of north is near the tower {i}?" for i in range(6)]
    answered = Session(detector, made.model).answer(questions, route=route)
    given = Session(detector, made.model).score(questions, [each.answer for each in answered], route=route)
    for each, verdict in zip(answered, given, strict=True):
        assert each.verdict.decision == verdict.decision
        if each.verdict.score is not None and verdict.score is not None:
            assert each.verdict.score == pytest.approx(verdict.score, abs=2e-3)
            assert (each.verdict.route is None) == (verdict.route is None)


def test_one_question_or_many(stack: Detector, made: Made) -> None:
    one = stack.answer(made.model, "Which hill of north is near the tower 3?")
    many = stack.answer(made.model, ["Which hill of north is near the tower 3?"])
    assert isinstance(many, list)
    assert one == many[0]


def test_a_request_makes_the_prompt_that_is_answered(stack: Detector, made: Made) -> None:
    question = "Which hill of north is near the tower 3?"
    reader = stack.session(made.model).reader
    read = reader.generated([question], stack.needs)
    asked = made.model.tokenizer(stack.request(question)["prompt"]).input_ids
    assert asked == [*reader.prompter.shared_ids, *read.samples[0].answer.prompt_ids]


def test_saved_and_loaded_scores_are_identical(stack: Detector, combined: Detector, made: Made, tmp_path: Path) -> None:
    inputs = read_labelled(made.store, "one", SET).inputs
    for place, detector in enumerate((stack, combined)):
        detector.save(tmp_path / f"d{place}")
        again = Detector.load(tmp_path / f"d{place}")
        np.testing.assert_array_equal(again.logits(inputs), detector.logits(inputs))
        assert again.judge(inputs) == detector.judge(inputs)
        assert again.card == detector.card
        assert again.threshold == detector.threshold
    with pytest.raises(DetectorError, match="cannot load the detector"):
        Detector.load(tmp_path / "none")
    record = json.loads((tmp_path / "d0.json").read_text())
    (tmp_path / "d0.json").write_text(json.dumps(with_checksum({**without_checksum(record), "format": 99})))
    with pytest.raises(DetectorError, match="its format is 99"):
        Detector.load(tmp_path / "d0")


@pytest.mark.parametrize("name", ["logprob_min", "question_confidence", "single_layer_confidence"])
def test_every_form_is_saved_and_loaded(name: str, made: Made, tmp_path: Path) -> None:
    detector = fit_run(made.store, "one", [SET], name)
    detector.save(tmp_path / name)
    inputs = read_labelled(made.store, "one", SET).inputs
    np.testing.assert_array_equal(Detector.load(tmp_path / name).logits(inputs), detector.logits(inputs))


def test_who_is_refused(stack: Detector, made: Made, tmp_path: Path) -> None:
    prompter = Session(stack, made.model).reader.prompter
    assert refused(stack, made.model, prompter) is None
    about = stack.about

    def message(**changed: object) -> str:
        other = replace(stack, about=replace(about, **changed))
        refusal = refused(other, made.model, prompter)
        assert refusal is not None
        return refusal[0]

    assert "7 layers, but one has" in message(layers=7)
    assert "states of width 99" in message(width=99)
    assert "bfloat16, but one is loaded in float32" in message(model={**about.model, "dtype": "bfloat16"})
    assert "another tokenizer" in message(model={**about.model, "tokens": "x"})
    before = {name: mark for name, mark in about.model.items() if name not in ("shape", "tokens")}  # in version 0.2.0
    assert refused(replace(stack, about=replace(about, model=before)), made.model, prompter) is None
    assert "another tokenizer" in message(model={**before, "tokenizer": "x"})
    assert "another prompt template" in message(template="x")
    shorter = Prompter(made.model.tokenizer, PromptSpec(shots=0), made.model.wants_bos)
    assert "another prompt template" in (refused(stack, made.model, shorter) or ("",))[0]
    edited = load_tiny("llama", tmp_path / "llama")
    with torch.no_grad():
        for weight in edited.network.parameters():
            weight += 0.05 * torch.randn_like(weight)
    same = replace(stack, about=replace(about, model={**about.model, **edited.marks}))
    with pytest.raises(DetectorError, match="another model, revision or quantisation"):
        Session(same, edited)
    no_site = replace(stack, about=replace(about, site="attn"))
    inputs = read_labelled(made.store, "one", SET).inputs
    bare = Inputs(inputs.ids, inputs.questions, inputs.answers, inputs.numbers, {})
    with pytest.raises(anchorscope.AnchorscopeError, match="have no clean/mlp/answer_last"):
        no_site.judge(bare)


def test_what_cannot_be_said_is_not_passed(stack: Detector, made: Made) -> None:
    asked = "Which river of north is near the tower 4?"
    verdict = stack.score(made.model, asked, "...")
    assert (verdict.decision, verdict.p_wrong) == ("cannot say", None)
    assert "no exact answer" in verdict.reason
    long = stack.score(made.model, asked, "Paris and " * 12 + "Rome")
    assert long.decision == "cannot say"
    inputs = read_labelled(made.store, "one", SET).inputs
    from anchorscope.detectors.inputs import States

    far = {name: States(each.layers, lambda k, each=each: 50 * each.layer(k)) for name, each in inputs.states.items()}
    odd = Inputs(inputs.ids, inputs.questions, inputs.answers, inputs.numbers, far)
    assert all("unlike" in each.reason for each in stack.judge(odd))
    usual = [each.decision for each in stack.judge(inputs)]
    assert usual.count("cannot say") <= 0.05 * len(usual)


def test_a_passage_is_read_and_one_that_is_too_long_is_not_judged(stack: Detector, made: Made) -> None:
    question, answer, passage = "Which hill is near north 3?", "Danube", "A hill is near."
    stack = replace(stack, moments=replace(stack.moments, farthest=np.inf))  # fitted without passages, it would not say
    plain, with_passage, listed = (
        stack.score(made.model, question, answer),
        stack.score(made.model, question, answer, context=passage),
        stack.score(made.model, [question] * 2, [answer] * 2, context=[None, passage]),
    )
    assert with_passage.reason == ""
    assert with_passage.score != plain.score
    assert [each.score for each in listed] == pytest.approx([plain.score, with_passage.score], abs=1e-5)
    # the passage stands before the question, as a study with passages puts it
    read = stack.session(made.model).reader.given([question], [answer], stack.needs, [passage])
    said = made.model.tokenizer.decode(read.samples[0].answer.prompt_ids)
    assert passage in said
    assert said.index(passage) < said.index(question)
    longest = stack.moments.longest_prompt
    for words in (longest, 4 * longest):  # the second is too long for the model itself
        verdict = stack.score(made.model, question, answer, context=" a" * words)
        assert verdict.decision == "cannot say"
        assert "too long" in verdict.reason
        judged = stack.answer(made.model, question, context=" a" * words)
        assert judged.verdict.decision == "cannot say"
    reasons = [stack.score(made.model, question, answer, context=" a" * (longest * n // 4)).reason for n in (1, 2, 3)]
    assert any("its prompt is too long" in reason for reason in reasons)
    with pytest.raises(AnchorscopeError, match="question has 2 and context has 1"):
        stack.score(made.model, [question] * 2, [answer] * 2, context=[passage])


def test_a_passage_is_not_judged_by_a_detector_fitted_without(stack: Detector, made: Made, tmp_path: Path) -> None:
    assert stack.moments.passages is True  # every fifth question of the run has one
    without = replace(stack, moments=replace(stack.moments, passages=False))
    without.save(tmp_path / "without")
    without = Detector.load(tmp_path / "without")
    question, answer = "Which hill is near north 3?", "Danube"
    verdict = without.score(made.model, question, answer, context="A hill is near.")
    assert (verdict.decision, verdict.p_wrong) == ("cannot say", None)
    assert "fitted without passages" in verdict.reason
    assert "passage" not in without.score(made.model, question, answer).reason
    inputs = read_labelled(made.store, "one", SET).inputs
    assert inputs.number(PASSAGE).tolist() == [float(i % 5 == 4) for i in range(len(inputs))]
    judged = without.judge(inputs)
    assert all(each.decision == "cannot say" for each in judged[4::5])


def test_a_long_answer_and_an_abstention_are_refused_before_the_pass(
    stack: Detector, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(stack, made.model)

    def never(*_: object) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr(session.reader.generator, "score", never)
    monkeypatch.setattr(Reader, "read", never)
    question = "Which river of north is near the tower 4?"
    answers = ["Paris and " * 2_500 + "Rome", "I don't know.", "I'm not sure which river that is.", ""]
    verdicts = session.score([question] * 4, answers)
    assert {each.decision for each in verdicts} == {"cannot say"}
    assert "it is too long: " in verdicts[0].reason
    assert verdicts[1].reason == verdicts[2].reason == ABSTENTION
    assert verdicts[3].reason == "no exact answer: the answer is empty"


def test_a_detector_at_chance_says_so(made: Made, tmp_path: Path) -> None:
    rows = [{"question": f"Which river is near the tower {i}?", "answer": f"town {i % 7}", "label": i * i % 11 < 5,
             "subject": f"tower {i}"} for i in range(80)]  # fmt: skip
    file, kept = write_jsonl(tmp_path / "answers.jsonl", rows), tmp_path / "kept"
    arguments = [
        "-m",
        str(made.folder / "one"),
        "-o",
        str(kept),
        "--detector",
        "logprob_min",
        "--at-most",
        "30% false alarms",
    ]
    done = CliRunner().invoke(app, ["detect", "fit", str(file), *arguments])
    assert done.exit_code == 0, done.output
    fitted = Detector.load(kept)
    assert fitted.card.auroc[1] <= 0.5
    assert "not shown to be better than chance: the interval" in " ".join(done.output.split())
    others, chance = fitted.card.not_for[:2]
    assert "answers of the model itself" in others
    assert "not shown to be better than chance" in chance
    assert "was asked 40 questions" in " ".join(done.output.split())
    assert fitted.moments.passages is False


def test_a_file_is_asked_how_many_of_its_answers_are_the_models_own(made: Made) -> None:
    reader = Reader(made.model, Prompter(made.model.tokenizer, PromptSpec(), made.model.wants_bos))
    questions = [f"Which river is near the tower {i}?" for i in range(70)]
    own = [sample.answer.answer for sample in reader.generated(questions, []).samples]
    lines = [AnswerLine(question, f" {answer} ", True) for question, answer in zip(questions, own, strict=True)]
    others = [AnswerLine(question, "a town", False) for question in questions]
    assert _own_answers(reader, lines) == (35, 35)  # every second
    assert _own_answers(reader, others) == (0, 35)
    assert _own_answers(reader, [*others, *lines]) == (35, 35)  # several answers to a question
    assert _own_answers(reader, []) == (0, 0)


def test_probabilities_move_with_the_base_rate(combined: Detector, made: Made) -> None:
    inputs = read_labelled(made.store, "one", SET).inputs
    low, high = (combined.at(rate).judge(inputs) for rate in (0.1, 0.9))
    pairs = [(a.p_wrong, b.p_wrong) for a, b in zip(low, high, strict=True) if a.p_wrong is not None]
    assert all(a < b for a, b in pairs)
    with pytest.raises(DetectorError, match="base_rate must be"):
        combined.at(1.0)
    right = read_labelled(made.store, "one", SET).right
    assert fit_temperature(-combined.logits(inputs), right) > 0


def test_the_route_sums_to_the_logit(stack: Detector, made: Made) -> None:
    from anchorscope.detectors.detector import parts_of

    inputs = read_labelled(made.store, "one", SET).inputs
    assert stack.parts is not None
    question, answer = parts_of(stack.fitted, inputs, stack.parts.clean, stack.parts.knockout)
    np.testing.assert_allclose(question + answer + stack.fitted.bias, stack.fitted.logits(inputs), atol=1e-3)
    routes = stack.routes(inputs)
    assert routes is not None
    assert {each.named for each in routes} <= {"question", "answer", "withheld"}
    assert all((each.question is None) == (each.named == "withheld") for each in routes)


def test_pooled_sets_keep_their_clusters_apart(made: Made) -> None:
    one = read_labelled(made.store, "one", SET)
    both = pooled([one, one])
    assert len(both.right) == 2 * len(one.right)
    assert not set(both.clusters[: len(one.right)]) & set(both.clusters[len(one.right) :])
    np.testing.assert_array_equal(both.inputs.state(CLEAN).layer(1)[len(one.right) :], one.inputs.state(CLEAN).layer(1))


def test_the_commands(made: Made, copied: Path, tmp_path: Path) -> None:
    run = CliRunner()
    where, kept = str(copied), str(tmp_path / "kept")
    done = run.invoke(app, ["detect", "fit", where, "-m", "one", "-o", kept, "--at-most", "30% false alarms"])
    assert done.exit_code == 0, done.output
    assert "AUROC out of fold" in done.output
    assert "then one of its right answers" in " ".join(done.output.split())
    # two answers to each question; the subject keeps questions of one template apart
    rows = [
        {
            "question": f"Which river of north is near the tower {i // 2}?",
            "answer": "Paris" if i % 4 < 2 else "sand",
            "label": i % 4 < 2,
            "subject": f"tower {i // 2}",
        }
        for i in range(100)
    ]
    file = write_jsonl(tmp_path / "answers.jsonl", [*rows, {"question": "Which river is it?", "answer": None}])
    model = str(made.folder / "one")
    done = run.invoke(app, ["detect", "score", kept, str(file), "-m", model, "-o", str(tmp_path / "verdicts.jsonl")])
    assert done.exit_code == 0, done.output
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert len(verdicts) == 101
    assert (verdicts[-1]["decision"], verdicts[-1]["reason"]) == ("cannot say", "no exact answer: the answer is empty")
    assert {each["decision"] for each in verdicts} <= {"flag", "pass", "cannot say"}
    done = run.invoke(app, ["detect", "check", kept, str(file), "-m", model, "-o", str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert "Recalibrated" in done.output
    again = Detector.load(tmp_path / "again")
    assert again.shift != (1.0, 0.0)
    assert again.held_out is not None
    assert again.held_out.clusters.tolist() == [i // 2 for i in range(100)]
    assert again.threshold is not None
    assert (again.threshold.right, again.threshold.wrong) == (25, 25)  # one of each pair
    # the same model in another form: refused, and judged by the detector that the hint's command saves
    other = load_model(made.model.spec)
    with torch.no_grad():
        for weight in other.network.parameters():
            weight += 0.02 * weight.std() * torch.randn_like(weight)
    other.network.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")
    asked = ("Which river of north is near the tower 3?", "Paris")
    with pytest.raises(DetectorError, match="detect check DETECTOR ANSWERS") as refusal:
        Detector.load(kept).score(str(tmp_path / "other"), *asked)
    command = str(refusal.value).partition("anchorscope ")[2].split()
    named = {"DETECTOR": kept, "ANSWERS": str(file), "NEW": str(tmp_path / "new")}
    done = run.invoke(app, [named.get(word, word) for word in command])
    assert done.exit_code == 0, done.output
    assert Detector.load(tmp_path / "new").score(str(tmp_path / "other"), *asked).score is not None
    done = run.invoke(app, ["detect", "fit", str(file), "-m", model, "-o", kept, "--detector", "joint"])
    assert done.exit_code == 0, done.output
    arguments = [
        "-m",
        "one",
        "--repeats",
        "1",
        "--detector",
        "stack",
        "--detector",
        "single_layer",
        "--detector",
        "question_only",
    ]
    done = run.invoke(app, ["detect", "eval", where, *arguments, "--light", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "beyond the question" in done.output
    printed = " ".join(done.output.split())
    assert "errors among the 80 % of answers that pass, if 10, 30 or 50 % of all answers are wrong" in printed
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "detectors.csv",
        "detectors.md",
        "detectors.png",
        "scores.parquet",
    }


def compare(root: Path, names: Sequence[str], repeats: int = 1) -> list[Comparison]:
    with Store.writing(root, Store.open(root).study) as store:
        plan = EvalPlan(repeats, tuple(names), light=True)
        return compare_run(store, plan, ["one"], [SET], silent, lambda text: None)


def files_of(root: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of tables."""
    paths = sorted((root / "one").rglob("part-*"))
    return {path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_another_detector_adds_its_scores_and_touches_no_others(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare(copied, ["logprob_min", "confidence"])
    assert {row.detector for row in first} == {"logprob_min", "confidence"}
    before = files_of(copied)
    assert repr(compare(copied, ["confidence", "logprob_min"])) == repr(first)
    second = compare(copied, ["confidence", "question_only"])
    assert {row.detector for row in second} == {"logprob_min", "confidence", "question_only"}
    after = files_of(copied)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {f"one/{SET}/scores-question_only/part-000000.parquet"}
    old, new = (
        {(row.detector, row.measure): row.value for row in rows if row.measure == "auroc"} for rows in (first, second)
    )
    assert new == pytest.approx(new | old)
    # the report reads what was compared, and measures nothing
    monkeypatch.setattr("anchorscope.detectors.scored.measure", None)
    store = Store.open(copied)
    assert repr(read_comparison(store)) == repr(detected([store]).comparisons[0]) == repr(second)
    assert set(anchorscope.open_run(copied).table("scores")["detector"].to_pylist()) == set(DETECTORS[:3])
    # scores that are no longer what was compared have no comparison
    shutil.rmtree(copied / "one" / SET / "scores-confidence")
    assert read_comparison(store) == []


def test_scores_that_cannot_be_compared_are_refused_and_no_sample_is_to_be_deleted(copied: Path) -> None:
    compare(copied, ["logprob_min", "confidence"])
    with pytest.raises(StoreError, match="repeats: 1 → 2") as refused:
        compare(copied, ["question_only"], repeats=2)
    hint = refused.value.hint or ""
    cell = copied / "one" / SET
    deleted = re.findall(rf"{re.escape(str(cell))}[^ ,]*(?=[,.])", hint)
    assert [Path(folder).name.rstrip(".") for folder in deleted] == ["scores-logprob_min", "scores-confidence"]
    for name in ("logprob_min", "confidence"):
        shutil.rmtree(cell / f"scores-{name}")
    assert {row.detector for row in compare(copied, ["question_only"], repeats=2)} == {"question_only"}


def test_a_run_compared_by_an_earlier_version_is_compared_anew(copied: Path) -> None:
    """Version 0.2.0 kept all detectors in one table `scores`, which stays as it is."""
    store = Store.open(copied)
    old = store.results("one", SET).begin(Kind("scores", AnswerMean), Plan(1, 1), {"detectors": ["everything"]}, {})
    old.write(0, [AnswerMean("q")])
    before = old.path(0).read_bytes()
    assert read_comparison(store) == []
    assert {row.detector for row in compare(copied, ["logprob_min"])} == {"logprob_min"}
    assert old.path(0).read_bytes() == before
