"""What a passage adds to an answer, against log-probabilities by hand; the rule's promise on made-up numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import anchorscope
from anchorscope import GroundingRule
from anchorscope.cli import app
from anchorscope.detectors.grounding import ground_file, sample_with_passage
from anchorscope.errors import DetectorError, QuestionsError
from anchorscope.models.prompts import Prompter
from anchorscope.study import PromptSpec
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.knockout import NOTHING, Cut
from tiny import load_tiny

ASKED = ("Which river is near Hill?", "Danube", "The Danube is near Hill. It is long. Nobody swims there.")
PROMPT = PromptSpec(shots=1)


def by_hand(model, ids: list[int], tokens: int, cut: Cut) -> float:
    """The log-probability of the last tokens."""
    with attention_by_hand(model, cut, range(model.source.layers)), torch.no_grad():
        logits = model.network(torch.tensor([ids])).logits[0].double().log_softmax(dim=-1)
    return sum(float(logits[place - 1, ids[place]]) for place in range(len(ids) - tokens, len(ids)))


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt2"])
def test_numbers_are_those_of_plain_prompts_and_of_attention_by_hand(family: str, tmp_path):
    model = load_tiny(family, tmp_path, "float64")
    found = anchorscope.grounding(model, *ASKED, prompt=PROMPT, sentences=True)
    prompter = Prompter(model.tokenizer, PROMPT, model.wants_bos)
    sample = sample_with_passage(prompter, *ASKED)
    spans, tokens = sample.spans, sample.exact_tokens
    ids = [*prompter.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids[:tokens]]

    def without(places) -> float:
        return by_hand(model, ids, tokens, Cut(tuple(places), tuple(place + 1 for place in places)))

    clean = by_hand(model, ids, tokens, NOTHING)
    assert found.tokens == tokens
    assert found.support == pytest.approx(clean, abs=1e-5)  # kept in float32
    plain = [*prompter(ASKED[0]).ids, *sample.answer.answer_ids[:tokens]]  # the ordinary prompt without a passage
    assert found.closed_book == pytest.approx(by_hand(model, plain, tokens, NOTHING), abs=1e-5)
    assert found.passage == pytest.approx(clean - by_hand(model, plain, tokens, NOTHING), abs=1e-5)
    assert found.evidence == pytest.approx(clean - without(spans.evidence), abs=1e-5)
    assert found.question == pytest.approx(clean - without(spans.exact_question), abs=1e-5)
    assert found.source == "cannot say"
    assert "a cut of the whole passage says nearly the same" in str(found)
    assert "and a cut of the sentences that hold the answer" in str(found)
    whole = anchorscope.grounding(model, *ASKED, prompt=PROMPT)
    assert whole.passage == pytest.approx(found.passage, abs=1e-5)
    assert whole.record()["evidence"] is None
    assert "sentences" not in str(whole)


def test_a_rule_keeps_its_promise(tmp_path):
    broken = 0
    for draw in range(40):
        random = np.random.default_rng(draw)
        followed = random.random(600) < 0.6
        lost = np.where(followed, random.normal(7, 2, 600), random.normal(0, 2, 600))
        rule = GroundingRule.fit("made up", lost, followed, at_most=0.1)
        assert rule.from_passage is not None
        assert rule.from_memory is not None
        many = random.random(20_000) < 0.6
        new = np.where(many, random.normal(7, 2, len(many)), random.normal(0, 2, len(many)))
        passage, memory = new >= rule.from_passage, new <= rule.from_memory
        broken += (~many)[passage].mean() > 0.1 or many[memory].mean() > 0.1
    assert broken <= 12  # each of two promises may break in a tenth: 8 are expected at most, and 13 in one of 17 runs
    path = rule.save(tmp_path / "rule.json")
    assert GroundingRule.load(path) == rule
    saved = json.loads(path.read_text(encoding="utf-8"))
    del saved["measure"]  # as version 0.2.0 saved rules, whose losses were those of a cut
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(DetectorError, match=r"under a cut of the passage, as version 0\.2\.0 measured them"):
        GroundingRule.load(path)


def test_verdicts_and_what_a_rule_cannot_be_fitted_on(tmp_path):
    rule = GroundingRule("m", 3.0, 1.0, 0.1, 0.1, 10, 10)
    model = load_tiny("llama", tmp_path, "float32")
    found = anchorscope.grounding(model, *ASKED, prompt=PROMPT)
    told = [
        rule(anchorscope.Grounding(**{**vars_of(found), "passage": added})).source
        for added in (3.5, 3.0, 2.0, 1.0, -1.0)
    ]
    assert told == ["from the passage", "from the passage", "cannot say", "from memory", "from memory"]
    with pytest.raises(DetectorError, match="this rule was fitted for m"):
        anchorscope.grounding(model, *ASKED, prompt=PROMPT, rule=rule)
    nothing = GroundingRule("m", None, None, 0.1, 0.1, 10, 10)
    assert nothing(found).source == "cannot say"
    with pytest.raises(DetectorError, match="from the passage and from memory"):
        GroundingRule.fit("m", [1.0, 2.0], [True, True])
    with pytest.raises(DetectorError, match="cannot load the rule"):
        GroundingRule.load(tmp_path / "nowhere.json")


def vars_of(found: anchorscope.Grounding) -> dict:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}


def test_a_file_of_answers_is_grounded_and_a_rule_fitted_and_used(tmp_path):
    model = load_tiny("llama", tmp_path / "tiny", "float32")
    folder = next(path.parent for path in (tmp_path / "tiny").rglob("config.json"))
    question, answer, passage = ASKED
    rows = [
        {
            "question": f"{question[:-1]} {i}?",
            "answer": answer,
            "context": passage,
            "source": ["memory", "passage"][i % 2],
        }
        for i in range(6)
    ]
    file, rule = tmp_path / "answers.jsonl", tmp_path / "rule.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = [str(file), "--model", str(folder), "--dtype", "float32"]
    told = CliRunner().invoke(app, ["grounded", *options])
    assert told.exit_code == 0, told.output
    lines = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    alone = anchorscope.grounding(model, rows[3]["question"], answer, passage)
    assert lines[3]["passage"] == pytest.approx(alone.passage, abs=1e-4)
    assert {line["source"] for line in lines} == {"cannot say"}
    fitted = CliRunner().invoke(app, ["grounded", *options, "--fit", str(rule), "--at-most", "0.1"])
    assert fitted.exit_code == 0, fitted.output
    assert "3 answers from the passage and 3 from memory" in fitted.output.replace("\n", " ")
    judged = CliRunner().invoke(app, ["grounded", *options, "--rule", str(rule), "-o", str(tmp_path / "out.jsonl")])
    assert judged.exit_code == 0, judged.output
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 6


def test_a_file_without_passages_or_with_another_source_is_refused(tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"question": "Who?", "answer": "Ann", "source": "web"}) + "\n", encoding="utf-8")
    with pytest.raises(QuestionsError, match="source is 'web'"):
        list(ground_file(file, "nothing"))
    file.write_text(json.dumps({"question": "Who?", "answer": "Ann"}) + "\n", encoding="utf-8")
    with pytest.raises(DetectorError, match="there is no context"):
        list(ground_file(file, "nothing"))
