"""Files of texts with labelled spans: what every format gives, what each word's label is, and what is refused where."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.errors import QuestionsError
from anchorscope.questions.row import MAX_TEXT
from anchorscope.words.files import SpanLabels, iter_texts, read_texts
from anchorscope.words.record import RIGHT, UNJUDGED, WRONG, Message, Span, Text
from conftest import SHARED, write_jsonl
from pages import blocks_of

TEXTS = SHARED.parent / "texts"
PAGE = Path(__file__).parents[2] / "docs" / "words.md"
BOTH = SpanLabels(right=frozenset({"right"}))

Row = dict[str, Any]


def span(start: Any, end: Any, label: Any = "wrong", **more: Any) -> Row:
    return {"start": start, "end": end, "label": label, **more}


def jsonl(folder: Path, *rows: Row) -> Path:
    return write_jsonl(folder / "texts.jsonl", list(rows))


def separated(folder: Path, rows: list[Row], ending: str) -> Path:
    """A CSV or TSV file, with lists as JSON and nothing in the cells of null."""
    path = folder / f"texts.{ending}"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if ending == "tsv" else ",")
        writer.writerow(columns)
        for row in rows:
            values = [row.get(name) for name in columns]
            writer.writerow([json.dumps(value) if isinstance(value, list) else value for value in values])
    return path


def parquet(folder: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "texts.parquet")
    return folder / "texts.parquet"


def one(folder: Path, **columns: Any) -> Text:
    (text,) = read_texts(jsonl(folder, columns))
    return text


# What is read --------------------------------------------------------------------------------------------------------

ROWS: list[Row] = [
    {
        "id": "a",
        "response": " Vienna, by the Seine,\r\nis “großartig”.",
        "prompt": "Where is\nVienna?",
        "messages": None,
        "passage": "Vienna lies by the Danube.",
        "continues": True,
        "cluster": "cities",
        "writer": "someone/some-model",
        "spans": [span(16, 21), span(29, 39, "unsure")],
    },
    {
        "id": "b",
        "response": 'Yes, "Vienna".',
        "prompt": None,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A city?"}],
        "passage": None,
        "continues": False,
        "cluster": "cities",
        "writer": None,
        "spans": [],
    },
    {
        "id": "c",
        "response": "Nobody read this.",
        "prompt": None,
        "messages": None,
        "passage": None,
        "continues": None,
        "cluster": None,
        "writer": None,
        "spans": None,
    },
]
READ = [
    Text(
        id="a",
        response=" Vienna, by the Seine,\r\nis “großartig”.",
        prompt="Where is\nVienna?",
        passage="Vienna lies by the Danube.",
        continues=True,
        cluster="cities",
        writer="someone/some-model",
        spans=(Span(16, 21, True), Span(29, 39, None)),
    ),
    Text(
        id="b",
        response='Yes, "Vienna".',
        messages=(Message("system", "Be brief."), Message("user", "A city?")),
        cluster="cities",
        spans=(),
    ),
    Text(id="c", response="Nobody read this.", cluster="c"),
]
FORMATS: dict[str, Callable[[Path], Path]] = {
    "jsonl": lambda folder: jsonl(folder, *ROWS),
    "csv": lambda folder: separated(folder, ROWS, "csv"),
    "tsv": lambda folder: separated(folder, ROWS, "tsv"),
    "parquet": lambda folder: parquet(folder, ROWS),
}


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_texts(ending: str, tmp_path: Path) -> None:
    path = FORMATS[ending](tmp_path)
    assert read_texts(path) == READ
    assert read_texts(path, judged=True) == READ[:2]


def test_a_response_is_all_a_row_needs_and_empty_columns_are_absent(tmp_path: Path) -> None:
    assert one(tmp_path, response="Yes.") == Text(id="1", response="Yes.", cluster="1")
    for nothing in ("", " \n", None):
        empty = dict.fromkeys(
            ("id", "prompt", "messages", "passage", "continues", "cluster", "writer", "spans"), nothing
        )
        assert one(tmp_path, response="Yes.", **empty) == Text(id="1", response="Yes.", cluster="1")
    assert one(tmp_path, response="Yes.", prompt="Q?", messages=[]).prompt == "Q?"


def test_ids_are_texts_or_whole_numbers_and_else_the_number_of_the_line_or_row(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('\n{"response": "A", "id": 7}\n\n{"response": "B"}\n{"response": "C", "id": "x"}\n')
    assert [text.id for text in read_texts(path)] == ["7", "4", "x"]
    assert [text.id for text in read_texts(parquet(tmp_path, [{"response": "A"}, {"response": "B"}]))] == ["1", "2"]
    # a cell with line ends: the row stands where it begins
    path = tmp_path / "texts.csv"
    path.write_text('response\n"A\nA"\nB\n')
    assert [text.id for text in read_texts(path)] == ["2", "4"]


def test_other_keys_of_a_span_and_other_columns_are_ignored(tmp_path: Path) -> None:
    spans = [span(0, 4, annotator="x", kinds=["unwanted"]), span(0, 4, annotator="y", kinds=[])]
    text = one(tmp_path, response="Vienna", spans=spans, facts=[1, {"a": 2}])
    assert text.spans == (Span(0, 4, True), Span(0, 4, True))
    rows = [{"response": "Vienna", "spans": spans, "facts": [1]}]
    assert [each.spans for each in read_texts(parquet(tmp_path, rows))] == [text.spans]


def test_texts_come_one_at_a_time(tmp_path: Path) -> None:
    texts = iter_texts(jsonl(tmp_path, {"response": "A"}, {"response": 1}))
    assert next(texts).response == "A"  # before the error behind it is seen
    with pytest.raises(QuestionsError, match=r"texts\.jsonl:2"):
        next(texts)


def test_nothing_heavy_is_imported() -> None:
    heavy = "('torch', 'transformers', 'sklearn', 'matplotlib')"
    script = f"import anchorscope.words.files, sys; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""


# Clusters ------------------------------------------------------------------------------------------------------------


def test_responses_to_one_passage_or_one_prompt_share_a_cluster(tmp_path: Path) -> None:
    def clusters(*rows: Row) -> list[str]:
        return [text.cluster for text in read_texts(jsonl(tmp_path, *({"response": "Yes."} | row for row in rows)))]

    a, b, c = clusters(
        {"passage": "The  Danube", "prompt": "Sum up."},
        {"passage": "the danube\n", "prompt": "What?"},
        {"passage": "The Seine", "prompt": "Sum up."},
    )
    assert a == b != c
    chat = [{"role": "user", "content": "who?"}]
    longer = [{"role": "user", "content": "Who"}, {"role": "assistant", "content": "?"}, *chat]
    a, b, c, d = clusters({"prompt": "Who?"}, {"prompt": " WHO? "}, {"messages": chat}, {"messages": longer})
    assert a == b == c != d
    assert all(len(cluster) < 40 for cluster in (a, d))
    a, b = clusters({"passage": "Who?"}, {"prompt": "Who?"})
    assert a != b
    # neither: a cluster of its own; and one that the file gives is used as it is
    assert clusters({"id": "x"}, {}, {"cluster": 7, "prompt": "Who?"}) == ["x", "2", "7"]


# The label of a word -------------------------------------------------------------------------------------------------


def test_wrong_beats_left_out_and_left_out_beats_right(tmp_path: Path) -> None:
    response = "Ada met Bob in Rome today"
    spans = [
        span(0, 25, "right"),
        span(4, 14, "unsure"),
        span(9, 9 + 1, "wrong"),  # a part of the word Bob
        span(15, 19, "right"),
    ]
    (text,) = read_texts(jsonl(tmp_path, {"response": response, "spans": spans}), BOTH)
    assert text.labels.tolist() == [RIGHT, UNJUDGED, WRONG, UNJUDGED, RIGHT, RIGHT]


def test_words_outside_all_spans_are_right_unless_right_ones_are_marked(tmp_path: Path) -> None:
    row = {"response": "Ada met Bob", "spans": [span(0, 3)]}
    path = jsonl(tmp_path, row, {"response": "Ada met", "spans": []}, {"response": "Ada met"})
    by_default, marked = read_texts(path), read_texts(path, BOTH)
    assert [text.unmarked_right for text in by_default + marked] == [True] * 3 + [False] * 3
    assert [text.labels.tolist() for text in by_default] == [[WRONG, RIGHT, RIGHT], [RIGHT] * 2, [UNJUDGED] * 2]
    assert [text.labels.tolist() for text in marked] == [[WRONG, UNJUDGED, UNJUDGED], [UNJUDGED] * 2, [UNJUDGED] * 2]


def test_offsets_count_characters_not_bytes_and_not_utf16_units(tmp_path: Path) -> None:
    response = "🤷🏽‍♀️ Zoe\u0308 visited 𝒯okyo 👍 twice"
    at = response.index("𝒯okyo")
    spans = [span(at, at + 5)]
    assert at != len(response[:at].encode("utf-16-le")) // 2 != len(response[:at].encode())
    for text in (
        one(tmp_path, response=response, spans=spans),
        *read_texts(separated(tmp_path, [{"response": response, "spans": spans}], "csv")),
        *read_texts(parquet(tmp_path, [{"response": response, "spans": spans}])),
    ):
        words = [response[start:end] for start, end in text.words]
        assert words == ["Zoe\u0308", "visited", "𝒯okyo", "twice"]
        assert text.labels.tolist() == [RIGHT, RIGHT, WRONG, RIGHT]


def test_a_span_may_cover_punctuation_alone_and_the_whole_response(tmp_path: Path) -> None:
    assert one(tmp_path, response="Ada, Bob", spans=[span(3, 4)]).labels.tolist() == [RIGHT, RIGHT]
    assert one(tmp_path, response="Ada, Bob", spans=[span(0, 8)]).labels.tolist() == [WRONG, WRONG]
    assert one(tmp_path, response="?!", spans=[span(0, 2)]).labels.tolist() == []


def slowly(response: str, words: list[tuple[int, int]], spans: list[Row], unmarked: int) -> list[int]:
    """The labels of words, from what is written over each character."""
    written: list[set[str]] = [set() for _ in response]
    for each in spans:
        for place in range(each["start"], each["end"]):
            written[place].add(each["label"])
    labels = []
    for start, end in words:
        over = set[str]().union(*written[start:end])
        if "wrong" in over:
            labels.append(WRONG)
        elif "unsure" in over:
            labels.append(UNJUDGED)
        elif "right" in over:
            labels.append(RIGHT)
        else:
            labels.append(unmarked)
    return labels


@st.composite
def marked_responses(draw: st.DrawFn) -> tuple[str, list[Row]]:
    letters = st.sampled_from("aB9 \t.,-’'_\n\r\x85\u2028é\u0301ß中🤷‍𝒯\"\\")
    text = draw(st.text(letters, min_size=2, max_size=40).filter(str.strip))
    places = st.lists(st.integers(0, len(text)), min_size=2, max_size=2, unique=True).map(sorted)
    ranges = draw(st.lists(places, max_size=6))
    return text, [span(*each, draw(st.sampled_from(["wrong", "unsure", "right"]))) for each in ranges]


@given(marked_responses())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the file is written anew each time
def test_labels_are_those_of_the_characters(tmp_path: Path, marked: tuple[str, list[Row]]) -> None:
    response, spans = marked
    row = {"response": response, "spans": spans}
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8", newline="")
    unmarked_are_right = [{**row, "spans": [each for each in spans if each["label"] != "right"]}]
    for path in (jsonl(tmp_path, row), plain, separated(tmp_path, [row], "csv")):
        (text,) = read_texts(path, BOTH)
        assert text.response == response
        assert text.labels.tolist() == slowly(response, text.words, spans, UNJUDGED)
    (text,) = read_texts(jsonl(tmp_path, *unmarked_are_right))
    assert text.labels.tolist() == slowly(response, text.words, unmarked_are_right[0]["spans"], RIGHT)


# What is refused -----------------------------------------------------------------------------------------------------

GOOD = {"response": "Ada met Bob", "spans": [span(0, 3)]}
USER = {"role": "user", "content": "Who?"}
HUGE = 10**30

REFUSED: list[tuple[Row, str]] = [
    ({"prompt": "Who?"}, "there is no 'response'"),
    ({"response": None}, "'response' is empty"),
    ({"response": " \n\u2003"}, "'response' is empty"),
    ({"response": ["Ada"]}, "'response' should be text, not ['Ada']"),
    ({"response": "Ada\x00"}, "'response' holds a NUL character"),
    ({"response": "x" * (MAX_TEXT + 1)}, "'response' is longer than 1,000,000 characters"),
    ({"id": 1.5}, "'id' should be text, not 1.5"),
    ({"id": True}, "'id' should be text, not True"),
    ({"writer": {"name": "x"}}, "'writer' should be text, not {'name': 'x'}"),
    ({"cluster": ["x"]}, "'cluster' should be text, not ['x']"),
    ({"passage": 3}, "'passage' should be text, not 3"),
    ({"prompt": [USER]}, "'prompt' should be text, not [{'role': 'user', 'content': 'Who?'}]"),
    ({"prompt": "Who?", "messages": [USER]}, "there are both 'prompt' and 'messages'; keep one of them"),
    ({"continues": "yes"}, "'continues' should be true or false, not 'yes'"),
    ({"continues": 1}, "'continues' should be true or false, not 1"),
    (
        {"continues": True, "messages": [USER]},
        "'continues' is true, but a response goes on in a 'prompt', not in 'messages'",
    ),
    ({"messages": "Who?"}, "'messages' is not JSON: Who?; in Python, write it with json.dumps"),
    ({"messages": USER}, "'messages' should be a list, not {'role': 'user', 'content': 'Who?'}"),
    ({"messages": ["Who?"]}, "message 1 should be an object with role and content, not 'Who?'"),
    (
        {"messages": [USER, {"role": "tool", "content": "x"}]},
        "message 2: role is 'tool', not system, user or assistant",
    ),
    ({"messages": [{"content": "x"}]}, "message 1: role is None, not system, user or assistant"),
    ({"messages": [{"role": ["user"], "content": ""}]}, "message 1: role is ['user'], not system, user or assistant"),
    ({"messages": [{"role": "user"}]}, "'content of message 1' should be text, not None"),
    (
        {"messages": [USER, {"role": "assistant", "content": "Ada"}]},
        "the last message is the assistant's, but the assistant's last turn is 'response'",
    ),
    ({"spans": "[{'start': 0}]"}, "'spans' is not JSON: [{'start': 0}]; in Python, write it with json.dumps"),
    ({"spans": "[" * 100_000}, f"'spans' is not JSON: {'[' * 80}…; in Python, write it with json.dumps"),
    ({"spans": '{"start": 0}'}, "'spans' should be a list, not {'start': 0}"),
    ({"spans": 0}, "'spans' should be a list, not 0"),
    ({"spans": [[0, 3, "wrong"]]}, "span 1 should be an object with start, end and label, not [0, 3, 'wrong']"),
    ({"spans": [span(0, 3), {"start": 0}]}, "span 2 has no end and no label"),
    ({"spans": [span(0, 3, None)]}, "span 1 has no label"),
    ({"spans": [span(0, 3, True)]}, "'label of span 1' should be text, not True"),
    ({"spans": [span(0, 3, " ")]}, "span 1: the label is empty"),
    ({"spans": [span(0.0, 3)]}, "span 1: start should be a whole number, not 0.0"),
    ({"spans": [span(0, "3")]}, "span 1: end should be a whole number, not '3'"),
    ({"spans": [span(False, 3)]}, "span 1: start should be a whole number, not False"),
    ({"spans": [span(-1, 3)]}, "span 1: start is -1, but the first character is number 0"),
    ({"spans": [span(3, 3)]}, "span 1: start is 3 and end is 3, but start must be below end"),
    ({"spans": [span(4, 3)]}, "span 1: start is 4 and end is 3, but start must be below end"),
    ({"spans": [span(0, 12)]}, "span 1: end is 12, but the response has 11 characters"),
    ({"spans": [span(0, HUGE)]}, f"span 1: end is {HUGE}, but the response has 11 characters"),
]


def refusal(path: Path, *arguments: Any, **more: Any) -> QuestionsError:
    with pytest.raises(QuestionsError) as caught:
        read_texts(path, *arguments, **more)
    return caught.value


@pytest.mark.parametrize(("wrong", "problem"), REFUSED, ids=lambda value: value[:50] if isinstance(value, str) else "")
def test_a_row_that_is_wrong_is_named(wrong: Row, problem: str, tmp_path: Path) -> None:
    row = wrong if problem.startswith("there is no") else {**GOOD, **wrong}
    path = jsonl(tmp_path, GOOD, row, GOOD)
    error = refusal(path)
    assert error.message == f"{path}:2: {problem}"
    assert "Unicode characters" in error.hint


def test_the_longest_text_and_the_last_character_are_taken(tmp_path: Path) -> None:
    text = one(tmp_path, response="x" * MAX_TEXT, spans=[span(MAX_TEXT - 1, MAX_TEXT)])
    assert text.labels.tolist() == [WRONG]


def test_the_first_row_that_is_wrong_is_reported_with_the_number_of_others(tmp_path: Path) -> None:
    wrong = [{**GOOD, "spans": [span(0, end)]} for end in (12, 13, 14)]
    path = jsonl(tmp_path, GOOD, wrong[0], GOOD, wrong[1], wrong[2])
    assert refusal(path).message.endswith(
        f"texts.jsonl:2: span 1: end is 12, but the response has 11 characters (the next of 2 more: {path}:4)"
    )
    path = parquet(tmp_path, [GOOD, wrong[0]])
    assert refusal(path).message == f"{path}, row 2: span 1: end is 12, but the response has 11 characters"
    path = separated(tmp_path, [{"response": "two\nlines"}, GOOD, wrong[1]], "csv")
    assert refusal(path).message == f"{path}:5: span 1: end is 13, but the response has 11 characters"


def test_an_id_is_given_once(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"response": "A", "id": "x"}, {"response": "B"}, {"response": "C", "id": "x"})
    assert refusal(path).message == f"{path}:3: line 1 has the same id, 'x'"
    path = jsonl(tmp_path, {"response": "A"}, {"response": "B", "id": 1})  # the first has the number of its line
    assert refusal(path).message == f"{path}:2: line 1 has the same id, '1'"
    path = parquet(tmp_path, [{"response": "A", "id": "x"}, {"response": "B", "id": "x"}])
    assert refusal(path).message == f"{path}, row 2: row 1 has the same id, 'x'"


def test_a_file_without_texts_or_without_responses_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path)
    assert refusal(path).message == f"{path}: the file holds no texts"
    rows = [{"answer": "A", "spans": []}, {"answer": "B", "spans": []}]
    for path in (jsonl(tmp_path, *rows), separated(tmp_path, rows, "tsv"), parquet(tmp_path, rows)):
        assert refusal(path).message == f"{path} has no column response (columns: answer, spans)"
    path = jsonl(tmp_path, {"answer": "A"}, {"response": "B"})  # the column is there, but not in every row
    assert refusal(path).message == f"{path}:1: there is no 'response'"
    assert "no such file" in refusal(tmp_path / "none.jsonl").message


def test_a_file_without_judged_responses_is_refused_where_some_are_needed(tmp_path: Path) -> None:
    rows = [{"response": "A", "labels": "[]"}, {"response": "B", "labels": ""}]
    for path in (jsonl(tmp_path, *rows), separated(tmp_path, rows, "csv"), parquet(tmp_path, rows)):
        error = refusal(path, judged=True)
        assert error.message == f"{path}: no response has spans (columns: response, labels)"
        assert "must be called spans" in error.hint
        assert len(read_texts(path)) == 2
    error = refusal(jsonl(tmp_path, {"response": "A", "spans": None}), judged=True)
    assert "into the column spans" in error.hint


# What labels mean ----------------------------------------------------------------------------------------------------


def test_a_label_without_a_meaning_is_refused_with_all_labels_of_the_file(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        GOOD,
        {**GOOD, "spans": [span(0, 3), span(4, 7, "benign")]},
        {**GOOD, "spans": [span(4, 7, "unsure"), span(4, 7, "Wrong")]},
    )
    error = refusal(path)
    assert error.message == (
        f"{path}:2: no option says what the label 'benign' means (labels of the file: wrong, benign, unsure, Wrong)"
    )
    assert all(option in error.hint for option in ("--wrong", "--right", "--leave-out"))
    labels = SpanLabels(wrong=frozenset({"wrong", "Wrong"}), left_out=frozenset({"unsure", "benign"}))
    assert [text.spans[-1].wrong for text in read_texts(path, labels) if text.spans] == [True, None, True]
    many = [{**GOOD, "spans": [span(0, 3, f"label {number}")]} for number in range(100)]
    assert refusal(jsonl(tmp_path, *many)).message.endswith("label 18, label 19, …)")


def test_a_label_has_one_meaning() -> None:
    for twice in ({"wrong": frozenset({"unsure"})}, {"right": frozenset({"wrong"})}, {"right": frozenset({"unsure"})}):
        with pytest.raises(QuestionsError, match="is given two meanings"):
            SpanLabels(**twice)


# Real files ----------------------------------------------------------------------------------------------------------


def shared(name: str) -> Path:
    if not TEXTS.is_dir():
        pytest.skip(f"the texts are not at {TEXTS}")
    return TEXTS / name


FAITHBENCH = SpanLabels(frozenset({"unwanted"}), left_out=frozenset({"questionable", "benign", "unlabelled"}))
FACTSCORE = SpanLabels(frozenset({"unsupported"}), frozenset({"supported"}))


def check_labels(texts: list[Text], path: Path, meanings: dict[str, str], unmarked: int) -> None:
    for text, line in zip(texts, path.read_text(encoding="utf-8").splitlines(), strict=True):
        row = json.loads(line)
        spans = [span(each["start"], each["end"], meanings[each["label"]]) for each in row["spans"]]
        assert text.labels.tolist() == slowly(text.response, text.words, spans, unmarked), text.id


def test_faithbench() -> None:
    path = shared("faithbench.jsonl")
    texts = read_texts(path, FAITHBENCH, judged=True)
    assert (len(texts), len({text.cluster for text in texts}), len({text.writer for text in texts})) == (750, 75, 10)
    assert all(text.passage and text.prompt and text.unmarked_right for text in texts)
    meanings = {"unwanted": "wrong", "questionable": "unsure", "benign": "unsure", "unlabelled": "unsure"}
    check_labels(texts, path, meanings, RIGHT)
    forgotten = SpanLabels(frozenset({"unwanted"}), left_out=frozenset({"questionable", "benign"}))
    assert "'unlabelled'" in refusal(path, forgotten).message
    assert "the label 'unwanted' means" in refusal(path).message


def test_without_clusters_faithbench_has_one_for_each_passage(tmp_path: Path) -> None:
    path = shared("faithbench.jsonl")
    given = read_texts(path, FAITHBENCH)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    made = read_texts(jsonl(tmp_path, *({**row, "cluster": None} for row in rows)), FAITHBENCH)
    names = {text.cluster: set[str]() for text in made}
    for before, after in zip(given, made, strict=True):
        names[after.cluster].add(before.cluster)
    # one passage stands in the benchmark twice, the second time with one more empty line
    assert [each for each in names.values() if len(each) > 1] == [{"passage-51", "passage-52"}]
    assert (len(names), sum(map(len, names.values()))) == (74, 75)


def test_factscore() -> None:
    path = shared("factscore.jsonl")
    texts = read_texts(path, FACTSCORE, judged=True)
    assert (len(texts), len({text.cluster for text in texts}), len({text.writer for text in texts})) == (505, 183, 3)
    assert not any(text.passage or text.unmarked_right for text in texts)
    check_labels(texts, path, {"unsupported": "wrong", "supported": "right"}, UNJUDGED)


def test_the_examples_of_the_page_are_read_and_mark_what_the_page_says(tmp_path: Path) -> None:
    marked = {}
    for block in blocks_of(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
            texts = read_texts(tmp_path / block.file)
            marked[block.file] = [text.response[a:b] for text in texts for a, b, _ in text.spans or ()]
    assert marked == {"texts.jsonl": ["1891", "in 1889"], "texts.csv": ["Paris"]}
