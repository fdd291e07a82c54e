"""Which passage stands in the place of a sample's own: the one that the set names, else another about the subject."""

from __future__ import annotations

from dataclasses import replace

from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import PromptSpec
from anchorscope.traces.swapped import swapped_prompts
from tiny import tiny_tokenizer

PROMPTER = Prompter(tiny_tokenizer(), PromptSpec(shots=1), False)


def sample(name: str, context: str | None, subject: str | None = None, extra: str = "{}") -> Sample:
    asked = Question.asked(f"Which river is near {name}?", ["Danube"], context)
    question = replace(asked, id=name, subject=subject, subject_group=subject, extra=extra)
    return SampleMaker(PROMPTER)(question, "Danube")


def swapped(*samples: Sample) -> dict[str, str]:
    """By question, the passage of its prompt."""
    found = swapped_prompts(samples, {one.question.id for one in samples}, PROMPTER, 0)
    contexts = {}
    for name, ids in found.items():
        read = PROMPTER.read_back([*PROMPTER.shared_ids, *ids])
        assert read is not None
        assert read[0] == f"Which river is near {name}?"
        contexts[name] = read[1] or ""
    return contexts


def test_the_set_may_name_the_other_passage():
    own = sample("Hill", "The Danube is near Hill.", extra='{"other_context": "The Rhine is near Hill."}')
    assert swapped(own) == {"Hill": "The Rhine is near Hill."}


def test_else_it_is_one_about_the_same_subject_that_holds_no_answer():
    passages = ["The Danube is near Hill.", "The danube is long.", "Nobody swims there.", "It is long."]
    first, *others = [sample(f"{number}", text, "hill") for number, text in enumerate(passages)]
    apart = sample("other", "Another town is far.", "town")
    found = swapped(first, *others, apart)
    assert found["0"] in passages[2:]
    assert found["2"] == passages[3]
    assert "other" not in found  # there is no other passage about it


def test_a_sample_without_a_passage_has_no_other():
    assert swapped(sample("Hill", None, "hill"), sample("Dale", None, "hill")) == {}
