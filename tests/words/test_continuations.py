"""Labels for a model's own words: where passages are cut, what is graded, and which entities are swapped."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.models.load import Model
from anchorscope.words.continuations import (
    Continuation,
    EntityCut,
    Passage,
    continue_texts,
    crossed,
    cut,
    entities,
    graded,
    leading,
    places,
)
from anchorscope.words.record import Span
from tiny import load_tiny


def found(text: str) -> list[tuple[str, str]]:
    return [(text[start:end], kind) for start, end, kind in entities(text)]


def cut_before(text: str) -> list[str]:
    return [text[place.entity.start : place.entity.end] for place in places(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the game was played by John F. Kennedy in Paris.", [("John F. Kennedy", "name"), ("Paris", "name")]),
        ("the Bank of England and the Levi's Stadium", [("Bank of England", "name"), ("Levi's Stadium", "name")]),
        ("they won Super Bowl 50 at St. Louis.", [("Super Bowl 50", "name"), ("St. Louis", "name")]),
        ("it was on February 7, 2016, and in 1990.", [("February 7, 2016", "date"), ("1990", "date")]),
        ("in the 7 May 1821 edition", [("7 May 1821", "date")]),
        ("it cost 5 million dollars, or 1,200 pounds", [("5 million", "number"), ("1,200", "number")]),
        ("all three of them, one of twenty-one", [("three", "number"), ("twenty-one", "number")]),
        ("61% of them", [("61", "number")]),
        # parts of something else
        ("it ended 24–10, in the 1990s, after 5-year talks", []),
        ("the German army of London's mayor with French-speaking men", []),
        ("on Monday I saw The game in the U.S. version at CBS.com", []),
        ("in 1500 soldiers came", []),
        ("", []),
    ],
)  # fmt: skip
def test_entities(text: str, expected: list[tuple[str, str]]):
    assert found(text) == expected


@pytest.mark.parametrize(
    ("passage", "expected"),
    [
        ("The first king of the country was William, who came in 1066.", ["William", "1066"]),
        ("Newton was a man. Hooke, too. Boyle met London.", []),  # too early in their sentences
        ("The man who lived in St. Albans was killed in Rome.", ["St. Albans", "Rome"]),  # St. ends no sentence
        ("He was a friend of Hooke. The man was born near Hooke.", ["Hooke"]),
        ("The friends of Isaac Newton said that nothing surprised Newton.", []),  # too early, and named before
        ("The two Germans left their country to live in Germany.", ["Germany"]),
        ("They never went to towns such as Paris.", []),
        ("They all liked the city of Paris and London.", []),
        ("They all liked the towns of Paris, London and Rome.", []),
        ("It was seen by more than 500 people, about 20 of them.", []),
        ("The whole trip did cost him $5 million and (perhaps) 1990.", []),
    ],
)  # fmt: skip
def test_where_a_passage_is_cut(passage: str, expected: list[str]):
    assert cut_before(passage) == expected


def test_a_cut_keeps_the_title_and_the_text_before_it():
    passage = Passage("p", "It rained. The last king of the country was William, who came in 1066. So.", "England")
    first, second = cut([passage])
    assert first == EntityCut(
        "p/0", "p", "England", "England\nIt rained. The last king of the country was", "William", "name",
        ", who came in 1066. ",
    )  # fmt: skip
    assert (second.id, second.prefix.endswith("who came in"), second.entity) == ("p/1", True, "1066")
    assert [one.id for one in cut([passage], 1)] in (["p/0"], ["p/1"])
    assert [one.entity for one in cut([passage._replace(title="William I")])] == ["1066"]
    assert {one.cluster for one in cut([passage._replace(title="")])} == {"p"}


WORDS = ["the", "in", "of", "Paris", "York", "12", "1990", "three", "May", ",", ".", "'", "-", "was", "and", "St"]


@given(st.lists(st.sampled_from(WORDS), max_size=14))
def test_an_entity_is_new_and_follows_a_prefix_without_a_space(chosen: list[str]):
    passage = " ".join(chosen)
    for one in cut([Passage("p", passage)]):
        assert (
            passage == f"{one.prefix} {one.entity}{one.rest}" + passage[len(one.prefix + one.entity + one.rest) + 1 :]
        )
        assert one.entity.lower() not in one.prefix.lower().split()
        assert len(one.prefix.split()) >= 4


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (" the Bank of England, which", ("Bank of England", "name")),
        (" 12 May 1990 in Paris.", ("12 May 1990", "date")),
        (" 12 million dollars", ("12 million", "number")),
        (" about 12 million", None),
        (" London's mayor", None),
        (" German soldiers", None),
        ("er Paris", None),
        (" a man from Paris", None),
        ("", None),
    ],
)
def test_what_a_continuation_begins_with(response: str, expected: tuple[str, str] | None):
    entity = leading(response)
    assert (entity and (response[entity.start : entity.end], entity.kind)) == expected


CUT = EntityCut("p/0", "p", "p", "He was born in", "New York City", "name", ", the largest town of the United States. ")


@pytest.mark.parametrize(
    ("entity", "kind", "written", "expected"),
    [
        ("New York City", "name", "New York City", True),
        ("New York City", "name", "New York", True),
        ("New York City", "name", "NYC", None),
        ("New York City", "name", "Boston", False),
        ("France", "name", "New France", None),
        ("New York City", "name", "United States", None),  # which the sentence says next
        ("John Fitzgerald Kennedy", "name", "John Kennedy", True),
        ("May 12, 1990", "date", "12 May 1990", True),
        ("1990", "date", "May 1990", True),
        ("1990", "date", "1991", False),
        ("5 million", "number", "5,000,000", True),
        ("5 million", "number", "5", False),
        ("three", "number", "3", True),
    ],
)
def test_what_is_right(entity: str, kind: str, written: str, expected: bool | None):
    assert graded(replace(CUT, entity=entity, kind=kind), written) is expected


def test_a_number_that_counts_something_else_cannot_be_told():
    number = replace(CUT, entity="12", kind="number", rest=" points and 3 goals.")
    assert [graded(number, "12", after) for after in (" points.", " point", " goals", ".")] == [True, True, None, None]
    assert [graded(number, "13", after) for after in (" points.", " goals", "% of them")] == [False, None, None]
    assert graded(replace(number, rest="% of"), "13", " percent") is False
    assert graded(replace(number, rest=", or"), "13", ".") is False


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that writes " Shakespeare" or, a little less often, " Mercury", and ends."""
    model = load_tiny("llama", tmp_path_factory.mktemp("writer"))
    names = [model.tokenizer(text, add_special_tokens=False).input_ids for text in (" Shakespeare", " Mercury", "\n")]
    assert [len(ids) for ids in names] == [1, 1, 1]
    (shakespeare,), (mercury,), (end,) = names
    with torch.no_grad():
        for layer in model.network.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        inputs, outputs = model.network.get_input_embeddings().weight, model.network.get_output_embeddings().weight
        inputs.zero_(), outputs.zero_()
        inputs[:, 0] = 1
        inputs[[shakespeare, mercury], 0], inputs[[shakespeare, mercury], 1] = 0, 1
        outputs[shakespeare, 0], outputs[mercury, 0], outputs[end, 1] = 5.0, 4.9, 5.0
    return model


def continued(model: Model, *own: EntityCut, samples: int = 8) -> list[Continuation]:
    return list(continue_texts(model, own, samples, 1.0))


@pytest.mark.transformers
def test_continuations_of_a_model_are_labelled(writer: Model):
    own = EntityCut("p/3", "p", "England", "The play was written by", "William Shakespeare", "name", ". ")
    made = continued(writer, own)
    assert [one.number for one in made] == list(range(9))
    assert Counter(one.outcome for one in made) == {"right": 1, "wrong": 1, "repeated": 7}
    greedy = made[0].text
    assert greedy is not None
    assert (greedy.id, greedy.prompt, greedy.response) == ("p/3#0", own.prefix, " Shakespeare")
    assert (greedy.cluster, greedy.writer, greedy.unmarked_right) == ("England", "tiny", False)
    assert greedy.spans == (Span(1, 12, False),)
    assert greedy.labels.tolist() == [0]
    (wrong,) = [one.text for one in made if one.outcome == "wrong"]
    assert wrong is not None
    assert (wrong.response, wrong.spans) == (" Mercury", (Span(1, 8, True),))


@pytest.mark.transformers
def test_what_is_no_entity_of_the_kind_has_no_label(writer: Model):
    date = EntityCut("p/0", "p", "p", "The play was written in", "1600", "date", ".")
    assert {(one.outcome, one.text) for one in continued(writer, date)} == {("another kind", None)}


@pytest.mark.transformers
def test_what_is_drawn_does_not_depend_on_the_other_prefixes(writer: Model):
    own = [EntityCut(f"p/{n}", "p", "p", f"The play {n} was written by", "Mercury", "name", ".") for n in range(5)]
    together, alone = continued(writer, *own), [one for each in own for one in continued(writer, each)]
    assert together == alone


@pytest.mark.transformers
def test_a_random_model_is_continued_without_labels(tmp_path: Path):
    model = load_tiny("gemma3_text", tmp_path)  # which wants BOS
    made = continued(model, *[replace(CUT, id=f"p/{n}") for n in range(3)], samples=2)
    assert len(made) == 9
    assert {one.cut.id for one in made} == {"p/0", "p/1", "p/2"}
    assert all((one.text is not None) == (one.outcome in ("right", "wrong")) for one in made)
    assert all(one.response == one.response.rstrip() for one in made)


NAMES = st.sampled_from(["Paris", "New York", "Isaac Newton", "York", "Bank of England", "Rome", "Hooke"])
NUMBERS = st.sampled_from(["12", "three", "5 million", "1,200", "7"])
DATES = st.sampled_from(["1990", "May 12, 1990", "1066", "June 2000"])


@st.composite
def some_cuts(draw: st.DrawFn) -> list[EntityCut]:
    cuts = []
    for number in range(draw(st.integers(0, 9))):
        page, passage = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        kind, from_ = draw(st.sampled_from([("name", NAMES), ("number", NUMBERS), ("date", DATES)]))
        said = draw(st.sampled_from(["He came to", "He met", "Rome had"]))
        name = f"{page}-{passage}"
        cuts.append(EntityCut(f"{name}/{number}", name, f"page {page}", said, draw(from_), kind, draw(NAMES)))
    return cuts


@given(some_cuts())
def test_crossed_texts(cuts: list[EntityCut]):
    by_id = {one.id: one for one in cuts}
    texts = crossed(cuts)
    assert len(texts) % 4 == 0
    assert len({text.id for text in texts}) == len(texts)
    partner: dict[str, set[str]] = {}
    clusters: dict[str, set[str]] = {}
    for at in range(0, len(texts), 4):
        four = texts[at : at + 4]
        ids, _, last = four[0].id.partition("#")
        a, b = (by_id[name] for name in ids.split("+"))
        assert [text.id.partition("#")[2] for text in four] == ["aA", "aB", "bA", "bB"]
        assert last == "aA"
        assert [text.prompt for text in four] == [a.prefix, a.prefix, b.prefix, b.prefix]
        assert [text.response for text in four] == [f" {one.entity}" for one in (a, b, a, b)]
        assert [text.spans and text.spans[0].wrong for text in four] == [False, True, True, False]
        for text in four:
            assert text.spans is not None
            assert text.response[text.spans[0].start : text.spans[0].end] == text.response[1:]
        assert a.kind == b.kind
        assert not {*a.entity.lower().split()} & {*b.entity.lower().split()}
        assert not {*b.entity.split()} & {*a.prefix.split()}
        assert not {*a.entity.split()} & {*b.prefix.split()}
        assert len({text.cluster for text in four}) == 1
        for one, other in ((a, b), (b, a)):
            partner.setdefault(one.passage, set()).add(other.passage)
            clusters.setdefault(one.cluster, set()).add(four[0].cluster)
    assert all(len(others) == 1 for others in partner.values())
    assert all(len(names) == 1 for names in clusters.values())  # no page in two clusters
    used = [name for text in texts[::4] for name in text.id.partition("#")[0].split("+")]
    assert len(used) == len(set(used))
