"""A number is declared once: what is named is computed, and nothing else; what is new is added to an old run."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest

import anchorscope.evidence.stage as stage_module
from anchorscope.errors import AnchorscopeError
from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.experiments import experiments, experiments_of, keys_of, register, unmeasured, unregister
from anchorscope.evidence.ledger import claims_of
from anchorscope.evidence.tables import GAPS, LOSSES
from anchorscope.pathways.chart import LEGEND, Chart, Row, solid
from anchorscope.pathways.effects import STATISTICS, check_key, sides
from anchorscope.pathways.lookup import read_lines
from anchorscope.pathways.record import NUMBERS, Key
from anchorscope.pathways.series import Series
from anchorscope.report.text.summary import KEYS as SENTENCES
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.store import Store
from anchorscope.study.terms import NULLS
from whole import GOOD, POINT, WholeRun

pytestmark = pytest.mark.transformers

TOKENS = Key("toy_tokens")


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    lengths = np.array([len(row.logprobs) for row in cell.recorded.rows], float)
    weights = cell.drawn.samples
    yield Series.of(TOKENS, (weights @ lengths / weights.sum(axis=1))[:, None], len(lengths))


TOY = Experiment(
    "toy",
    _series,
    ("toy_tokens",),
    (Claim("toy_short", "Answers are short", "tokens", "100 tokens", 100, "below", at_depth(HALF, TOKENS)),),
)


@pytest.fixture
def toy() -> Iterator[Experiment]:
    yield register(TOY)
    unregister(TOY)


def test_what_is_computed_is_what_is_named(whole: WholeRun):
    named = [key for experiment in experiments_of(whole.study) for key in keys_of(experiment)]
    for model, dataset in GOOD:
        made = read_lines(whole.store.results(model, dataset), POINT)
        assert [key for key in made if not key.among(named)] == []
        assert len(made) < 500
        # of what is named, only what needs other conditions, kinds of question, or enough samples of a group is missing
        measurable = {
            key
            for key in named
            if key.statistic in STATISTICS
            and not key.stratum.startswith("kind")
            and all(NULLS.get(name, name) in whole.study.traces.conditions for name in sides(key.condition))
        }
        assert measurable - set(made) == set()


def test_every_named_number_is_one_that_an_experiment_makes():
    made = [name for experiment in experiments() for name in experiment.statistics]
    assert len(made) == len(set(made))
    named = {key for experiment in experiments() for key in experiment.keys}
    assert {key.statistic for key in named} == set(made)
    assert {*SENTENCES.values(), *GAPS.values(), *LOSSES.values()} <= named
    for key in named:
        if key.statistic in STATISTICS:
            check_key(key)


def test_resamples_are_kept_of_what_a_claim_rests_on_and_of_nothing_else(whole: WholeRun):
    claimed = {key for experiment in experiments() for key in experiment.claimed}
    for key, line in read_lines(whole.store.results("one", "north"), POINT).items():
        assert (len(line.replicates) > 0) == key.among(claimed), key


def test_a_new_experiment_adds_its_lines_to_a_finished_run_and_touches_no_others(
    whole: WholeRun, tmp_path: Path, toy: Experiment, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "s"
    shutil.copytree(whole.store.root, root)
    before = list(Store.open(root).results("one", "north").table(NUMBERS.at(POINT)))
    measured: list[str] = []
    real = stage_module._measured
    monkeypatch.setattr(
        stage_module,
        "_measured",
        lambda cell, experiment, advance: measured.append(experiment.name) or real(cell, experiment, advance),
    )
    assert unmeasured(Store.open(root)) == ["toy"]
    with Store.writing(root, whole.study) as store:
        Pipeline(store).make(until(whole.study, "numbers"))
        assert unmeasured(store) == []
        after = list(store.results("one", "north").table(NUMBERS.at(POINT)))
        assert list(map(str, after[:-1])) == list(map(str, before))  # nan is not nan
        assert after[-1].experiment == "toy"
        assert {row.verdict for row in claims_of(store) if row.claim == "toy_short"} == {"holds"}
        lines = list(store.results("two", "south").table(NUMBERS.at(POINT)))
    assert [line.experiment for line in lines].count("toy") == 1
    assert "toy" in measured
    assert not {"chart", "donors", "mirror", "transfer"} & set(measured)


def test_an_experiment_that_names_what_nobody_measures_is_refused_with_the_nearest_name():
    chart = Chart("odd", (Row((solid(Key("delta_aurok", "knockout")),)),), LEGEND, "An odd chart.")
    with pytest.raises(AnchorscopeError, match="did you mean 'delta_auroc'"):
        register(Experiment("odd", _series, (), charts=(chart,)))
    for key, words in (
        (Key("delta_auroc", "knokout"), "there is no condition 'knokout'; did you mean 'knockout'"),
        (Key("delta_p", "knockout", "layr"), "there is no split 'layr'; did you mean 'layer'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(AnchorscopeError, match=words):
            register(Experiment("odd", _series, (), tables=(key,)))
    assert "odd" not in [experiment.name for experiment in experiments()]
