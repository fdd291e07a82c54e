"""The example that `anchorscope demo` draws: its table, its picture, its words and what the command says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from example import main, rows_in, table_of
from redraw import point_of
from typer.testing import CliRunner, Result

from anchorscope.cli import app
from anchorscope.evidence.chart_figures import DELTA_P
from anchorscope.pathways.record import Statistic
from anchorscope.report.csv import from_csv
from anchorscope.report.example import HEADING, TABLE, write_example
from anchorscope.report.figures import figure_with_panels

RESULTS = Path(__file__).parents[2] / "results" / "small-models"
with_results = pytest.mark.skipif(not RESULTS.exists(), reason="results/ is not part of this copy")
LARGEST = 60_000  # bytes of the table


def command(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> tuple[Result, Path]:
    runs = tmp_path_factory.mktemp("runs")
    return command("demo", "--runs", runs), runs / "demo-example"


@with_results
def test_the_table_is_what_the_script_makes_of_the_published_results():
    assert TABLE.read_bytes() == table_of(rows_in(RESULTS))
    assert TABLE.stat().st_size < LARGEST


@with_results
def test_the_script_writes_the_table(monkeypatch, tmp_path: Path, capsys):
    monkeypatch.setattr("example.TABLE", tmp_path / "example.csv")
    main([str(RESULTS)])
    assert (tmp_path / "example.csv").read_bytes() == TABLE.read_bytes()
    assert f"({TABLE.stat().st_size:,} bytes)" in capsys.readouterr().out


@with_results
def test_the_table_has_the_published_numbers_to_a_tenth_of_a_point():
    for ours, published in zip(from_csv(TABLE, Statistic), rows_in(RESULTS), strict=True):
        assert (ours.model, ours.dataset, ours.layer, ours.key, ours.n) == (
            published.model, published.dataset, published.layer, published.key, published.n,
        )  # fmt: skip
        for name in ("value", "low", "high"):
            assert getattr(ours, name) == pytest.approx(getattr(published, name), abs=0.051)
        assert ours.band_low is ours.band_high is None


def test_the_command_says_that_it_is_an_example_and_how_to_go_on(drawn: tuple[Result, Path]):
    result, folder = drawn
    assert result.exit_code == 0, result.output
    assert f"{HEADING}." in result.output
    assert HEADING.startswith("An example: ")
    printed = result.output.replace("\n", "")
    for name in ("example.png", "example.md"):
        assert str(folder / name) in printed
        assert (folder / name).exists()
    assert "anchorscope demo -m HuggingFaceTB/" in result.output
    assert "anchorscope run tutorial" in result.output


def test_picture_and_description_say_that_it_is_an_example(drawn: tuple[Result, Path]):
    folder = drawn[1]
    assert HEADING.encode() in (folder / "example.png").read_bytes()  # in the description that the file carries
    page = (folder / "example.md").read_text(encoding="utf-8")
    assert f"\n{HEADING}. " in page
    assert "ledger" not in page
    for row in from_csv(TABLE, Statistic):
        assert f"## Panel {row.model}\n" in page


def test_only_the_example_has_a_heading():
    rows = from_csv(TABLE, Statistic)
    figure, _ = figure_with_panels(DELTA_P, rows, ["SmolLM2-135M"], ["nq"], point_of(rows))
    assert figure.get_suptitle() == ""


def test_the_picture_shows_the_heading_above_the_panels(monkeypatch, tmp_path: Path):
    seen = []
    real = figure_with_panels

    def kept(*arguments):
        seen.append(real(*arguments))
        return seen[-1]

    monkeypatch.setattr("anchorscope.report.example.figure_with_panels", kept)
    write_example(tmp_path)
    ((figure, _),) = seen
    assert figure.get_suptitle().replace("\n", " ") == HEADING
    names = [axes.get_tightbbox() for axes in figure.axes]
    assert all(box.y1 <= figure._suptitle.get_window_extent().y0 for box in names)
    assert figure._suptitle.get_window_extent().y1 <= figure.bbox.y1


@pytest.mark.parametrize("option", [("--questions", 60), ("--dtype", "float32"), ("--data", ".")], ids=str)
def test_an_option_about_a_model_needs_one(option: tuple[str, object], tmp_path: Path):
    result = command("demo", "--runs", tmp_path, *option)
    assert result.exit_code == 2
    assert option[0] in result.output
    assert "Give a model too" in result.output
    assert not list(tmp_path.iterdir())


def test_nothing_of_a_model_is_imported(tmp_path: Path):
    code = (
        "import sys\nfrom anchorscope.cli import main\n"
        f"sys.argv = ['anchorscope', 'demo', '--runs', {str(tmp_path)!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "slow = ('torch', 'transformers', 'datasets', 'sklearn', 'scipy.stats')\n"
        "sys.exit(str([name for name in slow if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().splitlines()[-1] == "[]", done.stderr
