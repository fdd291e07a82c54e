"""The chart in words: every number is one of the table's, and the words change when the numbers do."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image

from anchorscope import Study
from anchorscope.evidence.record import LEDGER, ClaimVerdict
from anchorscope.pathways.lookup import collect
from anchorscope.pathways.record import NUMBERS, Statistic
from anchorscope.report.draw.palette import A_COLOURS, C_COLOURS, MARKERS, Q_COLOURS
from anchorscope.report.figures import draw
from anchorscope.report.text.describe import LONGEST_ALT, DescribedPanel, alt_text, ledger, page, panels_of
from anchorscope.report.text.lines import COLOURS, SIGNS, counted, layers, listed
from anchorscope.report.text.summary import truth
from anchorscope.store import Store
from anchorscope.store.table import Plan
from anchorscope.study.terms import ReadPoint
from conftest import Cli, assert_mendable
from figure_rows import CHARTS, MODELS, SETS, number, number_lines, numbers
from whole import only_svg

POINT = ReadPoint("mlp", "answer_last")
NUMBER = re.compile(r"−?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
VALUE = re.compile(r"(lowest|highest|starts at|halfway it is|ends at) (−?[\d.]+) \((−?[\d.]+) to (−?[\d.]+)\) "
                   r"at layer (\d+)")  # fmt: skip
TOO_FEW: list[float | None] = [None] * 8
FLAT = [-2.0, -3.0, -1.0, -2.0, -3.0, -2.0, -1.0, -2.0]
VALLEY = [-10.0, -20.0, -40.0, -55.0, -50.0, -40.0, -30.0, -25.0]


def panels(
    rows: Sequence[Statistic], models: Sequence[str] = (*MODELS,), datasets: Sequence[str] = SETS, name: str = "delta_p"
) -> list[DescribedPanel]:
    return panels_of(CHARTS[name], collect(rows, CHARTS[name].keys, models, datasets, POINT), models, datasets)


def page_of(rows: Sequence[Statistic], *what: object, verdicts: Sequence[ClaimVerdict] | None = None) -> str:
    return page(CHARTS["delta_p"], panels(rows, *what), POINT, verdicts)


def alt_of(rows: Sequence[Statistic], *what: object) -> str:
    return alt_text(CHARTS["delta_p"], panels(rows, *what))


def line(dataset: str, values: Sequence[float | None], group: str = "Q", model: str = "m") -> list[Statistic]:
    """One line of the published chart; its intervals reach 2 up and down."""
    what = {"model": model, "dataset": dataset, "group": group, "split": "layer"}
    return [
        number(layer=layer, n=12, **what)
        if v is None
        else number(layer=layer, n=50 + layer, value=v, low=v - 2, high=v + 2, **what)
        for layer, v in enumerate(values)
    ]


def small(**lines: Sequence[float | None]) -> list[Statistic]:
    """A chart of one model with 8 layers and two sets: what is not given is a valley, or flat near zero."""
    given = {"q_popqa": VALLEY, "q_nq": VALLEY, "a_popqa": FLAT, "a_nq": [-4.0] * 8, **lines}
    return [row for name, values in given.items() for row in line(name[2:], values, name[0].upper())]


def said_of(name: str, rows: Sequence[Statistic]) -> str:
    """What the page says of one line of a small chart."""
    said = [each for each in page_of(rows, ["m"], ["popqa", "nq"]).splitlines() if each.startswith(f"- {name}: ")]
    return said[1]  # the first is in the legend


@pytest.fixture(scope="module")
def rows() -> list[Statistic]:
    return list(numbers())


def written(value: float, decimals: int) -> str:
    text = f"{abs(value):.{decimals}f}"
    return f"−{text}" if value < 0 and float(text) else text


@pytest.mark.parametrize("name", CHARTS)
def test_every_number_of_the_words_is_one_of_the_tables(name: str, rows: list[Statistic]):
    drawn, known = panels(rows, name=name), {"0", "0.5"}
    for row in rows:
        if row.key in CHARTS[name].keys and row.site == "mlp":
            decimals = 1 if row.statistic in ("delta_p", "anchor_layer") else 3
            values = [each for each in (row.value, row.low, row.high) if each is not None]
            known |= {str(row.layer), f"{row.n:,}", *(written(value, decimals) for value in values)}
    for text in (page(CHARTS[name], drawn, POINT), alt_text(CHARTS[name], drawn)):
        said = re.sub(r"95 %|fewer than 30 samples", "", text.replace(CHARTS[name].caption, ""))
        for model in MODELS:
            said = said.replace(model, "")
        found = NUMBER.findall(said)
        assert len(found) > 15
        assert [each for each in found if each not in known] == []


@pytest.mark.parametrize("name", CHARTS)
def test_each_value_stands_with_its_layer_and_interval(name: str, rows: list[Statistic]):
    """The sentences of each line, read back: value, interval and layer are those of one row of that very line."""
    checked = 0
    for panel in panels(rows, name=name):
        for each in [line for bundle in panel.bundles for line in bundle]:
            there = [row for row in each.rows if row.value is not None]
            values = [row.value for row in there]
            for role, *said, layer in VALUE.findall(each.sentences()):
                (row,) = [row for row in there if row.layer == int(layer)]
                decimals = 1 if panel.row.least >= 1 else 3
                assert said == [written(v, decimals) for v in (row.value, row.low, row.high)]
                assert row.value == {
                    "lowest": min(values), "highest": max(values), "starts at": values[0], "ends at": values[-1],
                    "halfway it is": values[len(values) // 2],
                }[role]  # fmt: skip
                checked += 1
    assert checked > 40


def test_the_words_of_a_line_follow_its_numbers():
    assert said_of("Q-Anchored (PopQA)", small()) == (
        "- Q-Anchored (PopQA): lowest −55.0 (−57.0 to −53.0) at layer 3, highest −10.0 (−12.0 to −8.0) at layer 0. "
        "It starts at −10.0 (−12.0 to −8.0) at layer 0, halfway it is −50.0 (−52.0 to −48.0) at layer 4, and it ends "
        "at −25.0 (−27.0 to −23.0) at layer 7. Its interval excludes 0 at every layer. 50 to 57 samples per layer."
    )
    moved = said_of("Q-Anchored (PopQA)", small(q_popqa=[*VALLEY[:5], -56.0, *VALLEY[6:]]))
    assert "lowest −56.0 (−58.0 to −54.0) at layer 5" in moved
    assert "Its interval excludes 0 at layers 1 and 4." in said_of("A-Anchored (PopQA)", small())
    assert "Its interval includes 0 at every layer." in said_of("A-Anchored (NQ)", small(a_nq=[1.0] * 8))


def test_too_few_samples_and_undefined_values_are_told():
    gone = small(q_nq=TOO_FEW)
    assert said_of("Q-Anchored (NQ)", gone).endswith(": no line. Too few samples for a value at any layer.")
    assert "too few samples for a line: Q-Anchored (NQ)" in alt_of(gone, ["m"], ["popqa", "nq"])
    gaps = said_of("Q-Anchored (NQ)", small(q_nq=[None, None, -20.0, None, *VALLEY[4:]]))
    assert "It starts at −20.0 (−22.0 to −18.0) at layer 2," in gaps
    assert gaps.endswith(" Too few samples for a value at layers 0, 1 and 3.")
    single = said_of("Q-Anchored (NQ)", small(q_nq=[None, None, -20.0, *TOO_FEW[3:]]))
    assert single.startswith("- Q-Anchored (NQ): only one value, −20.0 (−22.0 to −18.0) at layer 2. Its interval")
    undefined = [
        dataclasses.replace(row, n=80) if row.value is None else row for row in small(q_nq=[None, *VALLEY[1:]])
    ]
    assert said_of("Q-Anchored (NQ)", undefined).endswith(" No value at layer 0.")
    text = alt_of(small(), ["m", "n"], ["popqa", "nq"])
    assert text.count("no Q-Anchored lines; no A-Anchored lines") == 1  # of the model without rows
    assert "A-Anchored (HotpotQA): not measured in this run." in page_of(small(), ["m"], ["nq", "hotpotqa"])


def test_rows_ticks_and_looks_are_named(rows: list[Statistic]):
    text = page(CHARTS["auroc"], panels(rows, name="auroc"), POINT)
    assert "## Panel (a) Llama-3.2-1B\n\nThe probe (solid), and a probe that sees only the question" in text
    assert "excludes 0.5 at" in text
    controlled = page(CHARTS["delta_p_controlled"], panels(rows, name="delta_p_controlled"), POINT)
    assert "Ticks on the x axis mark the mean anchor layer: PopQA 8.8" in controlled
    assert "- A-Anchored (TriviaQA): dashed red line, hollow squares.\n" in page_of(rows)
    assert (set(COLOURS), set(SIGNS)) == ({*Q_COLOURS, *A_COLOURS, *C_COLOURS}, set(MARKERS))
    assert len({*COLOURS.values(), *SIGNS.values()}) == len(COLOURS) + len(SIGNS)


# --- the ledger


def verdict(claim: str, model: str, dataset: str, answer: str) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim, model=model, dataset=dataset, statement=f"The {claim} is there.", statistic="s", control="c",
        threshold=0.0, side="below", value=-1.0, low=-2.0, high=0.5, p=0.01, verdict=answer, n=90,
    )  # fmt: skip


VERDICTS = [
    verdict("fall", "m", "popqa", "holds"),
    verdict("fall", "m", "nq", "holds"),
    verdict("fall", "m", "hotpotqa", "cannot tell"),
    verdict("gap", "m", "all", "does not hold"),
    verdict("depth", "m < n", "nq", "holds"),
]


def test_the_ledger_is_summed_up_over_sets_and_leads_with_truth():
    first = dataclasses.replace(verdict("truth", "m", "nq", "holds"), primary=True, tells_truth_from_difficulty=True)
    text = page_of(small(), ["m"], ["popqa", "nq"], verdicts=[*VERDICTS, first])
    assert "In all, six verdicts: 4 *holds*, 0 *there is one*, 1 *does not hold* and 1 *cannot tell*." in text
    assert "Claim: The truth is there. (truth or difficulty: yes; truth or prior: no.)" in text
    assert "Claim: The fall is there. (truth or difficulty: no; truth or prior: no.)\n\n- m: holds on PopQA" in text
    assert "- m: holds on PopQA and NQ; cannot tell on HotpotQA.\n" in text
    assert "- m: does not hold on all datasets together.\n" in text
    assert "- m (smaller) and n (larger): holds on NQ." in text
    yes, no = (text.index(f"{kind} claims.") for kind in ("Primary", "Exploratory"))
    assert yes < text.index("The truth is there") < no < text.index("The fall is there")
    assert list(ledger(None)) == [
        "This run has no ledger of claims yet. The command `anchorscope claims RUN` makes it."
    ]


def test_what_holds_within_a_question_is_counted():
    rows = [
        dataclasses.replace(
            verdict("within_signal", model, dataset, answer), primary=True, tells_truth_from_difficulty=True
        )
        for model, dataset, answer in (("m", "nq", "holds"), ("m", "popqa", "holds"), ("n", "nq", "cannot tell"))
    ]
    assert truth(rows) == (
        "Among several answers to one question, where the question's difficulty cannot help, the probe ranks right "
        "answers above wrong ones in 2 of 3 model–set pairs (cannot tell in 1)."
    )
    assert truth([]) == ""


# --- alt text, and the files that carry it


def test_alt_text_tells_ranges_and_stays_short_for_many_models():
    text = alt_of(small(a_nq=[1.0] * 8), ["m"], ["popqa", "nq"])
    assert "Q-Anchored lines lie between −55.0 (PopQA, layer 3) and −10.0 (PopQA, layer 0), and halfway the " in text
    assert "interval excludes 0 for all; A-Anchored" in text
    assert "interval excludes 0 for PopQA. Groups" in text
    models = [f"model-{'long-' * 15}{i}" for i in range(9)]
    sets = [f"set-{'long-' * 10}{i}" for i in range(9)]
    rows = [row for m in models for s in sets for g in "QA" for row in line(s, [-1.0, -20.0, -9.0, -30.0], g, m)]
    text = alt_of(rows, models, sets)
    assert len(text) <= LONGEST_ALT
    assert "and 4 more" in text
    assert "further panel" in text
    assert text.endswith("part of the gap between them holds by definition.")


@pytest.mark.parametrize("name", CHARTS)
def test_files_carry_the_alt_text(name: str, rows: list[Statistic], figures: Path):
    expected = alt_text(CHARTS[name], panels(rows, name=name))
    assert 300 < len(expected) <= LONGEST_ALT
    assert not re.search(r"[*#`\n]|  ", expected)  # one paragraph of plain text
    assert all(model in expected for model in MODELS)
    root = ET.parse(figures / f"{name}.svg").getroot()
    first = next(iter(root))
    assert (first.tag, first.text) == ("{http://www.w3.org/2000/svg}desc", expected)
    assert (root.get("role"), root.get("aria-describedby")) == ("img", first.get("id"))
    assert expected.startswith(root.get("aria-label", "nothing"))
    with Image.open(figures / f"{name}.png") as image:
        assert image.info["Description"] == expected
    subject = re.search(rb"/Subject \((.*?)(?<!\\)\)", (figures / f"{name}.pdf").read_bytes(), re.DOTALL)
    assert subject, "the PDF has no subject"
    names = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
    plain = re.sub(rb"\\(.)", lambda found: names.get(found[1], found[1]), subject[1], flags=re.DOTALL)
    assert plain.decode("utf-16") == expected


def test_odd_names_do_not_break_the_files(tmp_path: Path):
    odd = 'a<b> & "c" \\ (d) ]]> \x1b[1m'
    rows = [*line(odd, VALLEY, model=odd), *line(odd, FLAT, "A", model=odd)]
    with only_svg():
        draw(rows, [odd], [odd], tmp_path, charts=CHARTS)
    description = next(iter(ET.parse(tmp_path / "delta_p.svg").getroot())).text or ""
    assert 'a<b> & "c" \\ (d) ]]> \\x1b[1m' in description
    assert description == alt_of(rows, [odd], [odd])


# --- the command


def test_the_command_prints_the_page_or_the_alt_text(cli: Cli, tmp_path: Path, make_study: Callable[..., Study]):
    run = tmp_path / "runs" / "s"
    rows = [*line("numbers", VALLEY, model="model"), *line("numbers", FLAT, "A", model="model")]
    with Store.writing(run, make_study()) as store:
        store.results("model", "numbers").begin(NUMBERS.at(POINT), Plan(2, 2), {}, {}).write(0, number_lines(rows))
    done = cli("describe", str(run))
    assert (done.returncode, done.stdout) == (0, page_of(rows, ["model"], ["numbers"])), done.stderr
    assert cli("describe", str(run), "--alt").stdout == alt_of(rows, ["model"], ["numbers"]) + "\n"
    (run / LEDGER).write_text(json.dumps({"models": {}, "verdicts": [dataclasses.asdict(each) for each in VERDICTS]}))
    assert "holds on PopQA and NQ" in cli("describe", str(run), "--at", "mlp-answer_last").stdout
    (run / LEDGER).write_text('{"verdicts": [{}]}')
    assert_mendable(cli("describe", str(run)), "damaged", "anchorscope claims")
    assert_mendable(cli("describe", str(run), "--chart", "delta"), "there is no chart 'delta'")
    assert_mendable(cli("describe", str(run), "--chart", "auroc"), "nothing to draw")
    assert_mendable(cli("describe", str(run), "--at", "mlp-final"), "this run has no read point 'mlp-final'")


def test_lists_counts_and_layers_are_written_for_people():
    assert [listed(each) for each in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [counted(n, "line") for n in (0, 1, 13)] == ["no lines", "one line", "13 lines"]
    assert (layers([3]), layers([4, 3, 1, 0, 2, 9])) == ("layer 3", "layers 0 to 4 and 9")
