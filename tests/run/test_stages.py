"""Every stage is declared once, whatever goes by the list finds it, and an experiment joins by one registration."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import anchorscope
from anchorscope import Study, open_run
from anchorscope.answers.generate import Generated, Generator
from anchorscope.api.detectors import compare_run, prepare
from anchorscope.cli import app
from anchorscope.cost.stages import COSTS
from anchorscope.detectors.record import ANSWER_MEANS, SCORES, SEVERAL, EvalPlan
from anchorscope.detectors.scored import read_several_scores
from anchorscope.detectors.tables import read_labelled, read_several
from anchorscope.errors import StoreError, StudyError
from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.experiments import register, unregister
from anchorscope.models.load import load_model
from anchorscope.pathways.chart import LEGEND, Chart, Row, solid
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.probes.folds import folds_of
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.readouts import read_out_some
from anchorscope.probes.record import WITHIN
from anchorscope.progress import Advance, silent
from anchorscope.run import context as context_module
from anchorscope.run.context import RunContext
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import all_stages, chains, downstream, named, rounds, stages_of, tables, until
from anchorscope.run.status import status_of
from anchorscope.store import Job, Kind, StageDef, Store, Whole
from anchorscope.store.checksums import without_checksum
from anchorscope.store.rundir import STUDY_SHA256
from anchorscope.store.stage import with_evidence
from anchorscope.study import EngineSpec
from anchorscope.study.terms import StateName
from anchorscope.traces.record import TRACES
from reading_pages import Opened
from tiny_study import write_study
from whole import SUFFIXES, only_svg

SOURCE = Path(anchorscope.__file__).parent
SETS = {"north": (34, 36), "south": (32, 34)}
PROBES = {"repeats": 1, "folds": 3, "strengths": [0.01], "resamples": 100}
EVIDENCE = {"questions": 40, "answers": 4, "donors": 2, "saliency_samples": 10}


# --- the list


def declared_kinds() -> dict[str, str]:
    """Every `Kind` that a module of the package declares: its name, and where."""
    found = {}
    for path in SOURCE.rglob("record.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kind":
                found[ast.literal_eval(node.args[0])] = path.parent.name
    return found


def test_every_kind_of_table_is_in_exactly_one_stage():
    made = [kind.name for stage in all_stages() for kind in stage.tables]
    assert sorted(made) == sorted(declared_kinds())
    assert len(made) == len(set(made)) == 19


def test_a_stage_comes_after_those_it_reads_and_can_be_made():
    before: set[str] = set()
    for stage in all_stages():
        assert set(stage.after) <= before, stage.name
        assert stage.dealt_like in {"", *before}
        before.add(stage.name)
        assert isinstance(stage.make, str)
        module, function = stage.make.split(":")
        assert callable(getattr(import_module(module), function))


def test_every_stage_of_a_study_has_a_price():
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": ["nq"], "evidence": {}})
    assert {stage.title for stage in stages_of(study)} == set(COSTS)


def test_what_is_carried_out_together():
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": ["nq"], "evidence": {}})
    found = [tuple(stage.name for stage in chain) for chain in chains(stages_of(study))]
    assert found[:4] == [
        ("questions",), ("answers", "grades", "spans"), ("traces",), ("mass",),
    ]  # fmt: skip
    cells = [stage for stage in stages_of(study) if stage.scope == "cell"]
    together = [[chain[0].name for chain in turn] for turn in rounds(cells)]
    assert ["traces", "mass"] in together  # one pool of workers loads the model for both
    assert ["within", "saliency"] in together


def test_until_takes_what_is_dealt_alike_and_refuses_what_the_study_lacks():
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": ["nq"]})
    assert [stage.name for stage in until(study, "questions")] == ["questions"]
    assert [stage.name for stage in until(study, "answers")] == ["questions", "answers", "grades", "spans"]
    with pytest.raises(StudyError, match="did you mean 'traces'"):
        until(study, "trace")
    with pytest.raises(StudyError, match="does not make the stage 'saliency'"):
        until(study, "saliency")


def test_what_is_outdated_follows_from_what_reads_what():
    after = {stage.name for stage in downstream(named("grades"))}
    assert {"traces", "readouts", "numbers", "scores"} <= after
    assert not {"questions", "answers", "spans"} & after


# --- a run


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    traces = {"attention_samples": 4, "positions": ["answer_last", "final"]}
    return write_study(
        folder, {"one": "llama"}, SETS, probes=PROBES, traces=traces, evidence=EVIDENCE, shard_rows=32,
        prompt={"shots": 2},
    )  # fmt: skip


# An experiment as a newcomer would add it: its own table, a number for every layer, a claim and a chart.


@dataclass(frozen=True)
class Length:
    """One row of the `toy` table: how long an answer is."""

    id: str
    """the question's id"""
    tokens: int
    """tokens of the answer"""


TOY = Kind("toy", Length)


def _make(context: RunContext, job: Job) -> Whole[Length]:
    cell = job.cell(context.store)
    return Whole(
        f"{job.model}, {job.dataset}: counting", cell, TOY, {"traces": cell.origin(TRACES)},
        lambda advance: [Length(row.id, len(row.logprobs)) for row in cell.table(TRACES)],
    )  # fmt: skip


TOKENS = Key("toy_tokens")


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    lengths = np.array([row.tokens for row in cell.cell.table(TOY)], float)
    weights = cell.drawn.samples
    mean = (weights @ lengths / weights.sum(axis=1))[:, None] * np.ones(cell.readouts.layers)
    yield Series.of(TOKENS, mean, len(lengths))


TOY_EXPERIMENT = Experiment(
    "toy",
    _series,
    ("toy_tokens",),
    claims=(
        Claim(
            "toy_short", "Answers are shorter than a hundred tokens", "mean tokens of an answer", "100 tokens",
            100, "below", at_depth(HALF, TOKENS),
        ),
    ),
    charts=(
        Chart(
            "toy", (Row((solid(TOKENS),), label="tokens", least=1.0),), LEGEND,
            "The mean length of an answer.", title="How long answers are", tab="toys",
        ),
    ),
    stages=(StageDef("toy", (TOY,), _make, after=("traces",), whole=True, wanted=with_evidence),),
)  # fmt: skip


SAID = (" x", " fog", " old sand", " x indeed")


def say(
    generator: Generator, prompts: Sequence[Sequence[int]], answers: int, temperature: float, keys: Sequence[str],
    top_p: float, first: int, advance: Advance,
) -> list[list[Generated]]:  # fmt: skip
    """Tiny models never say what is right. So they are made to say these answers, the first of which is."""
    assert first == 0  # the first round has right and wrong answers
    tokens = [generator.model.tokenizer(text, add_special_tokens=False).input_ids for text in SAID[:answers]]
    scored = generator.score([prompt for prompt in prompts for _ in tokens], tokens * len(prompts))
    drawn = [Generated(ids, logprobs, True) for ids, logprobs in zip(tokens * len(prompts), scored, strict=True)]
    return [drawn[start : start + len(tokens)] for start in range(0, len(drawn), len(tokens))]


@pytest.fixture(scope="module")
def done(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A whole run, with the toy experiment registered."""
    register(TOY_EXPERIMENT)
    patch = pytest.MonkeyPatch()
    patch.setattr(Generator, "sample", say)
    try:
        root = tmp_path_factory.mktemp("runs") / "s"
        with only_svg(), Store.writing(root, study) as store:
            Pipeline(store)()
            compare_run(store, EvalPlan(repeats=1), ["one"], list(SETS), silent, lambda text: None)
        yield Store.open(root)
    finally:
        unregister(TOY_EXPERIMENT)
        patch.undo()


def test_an_experiment_by_one_registration_is_in_status_ledger_figures_and_report(done: Store):
    # 1. status: a table of its own, as of every stage
    states = {(table.part, table.table): table.state for table in status_of(done).tables}
    assert states["one/north", "toy"] == states["one/south", "toy"] == "complete"
    # 2. the ledger
    printed = CliRunner().invoke(app, ["claims", str(done.root)])
    assert printed.exit_code == 0, printed.output
    assert "Answers are shorter than a hundred tokens" in printed.output
    # 3. the figures
    for suffix in SUFFIXES:
        assert (done.root / "figures" / "mlp-answer_last" / f"toy.{suffix}").stat().st_size > 0
    # 4. the report
    written = CliRunner().invoke(app, ["report", str(done.root)])
    assert written.exit_code == 0, written.output
    page = Opened.of((done.root / "report.html").read_text(encoding="utf-8"))
    assert ["toys", "Toys"] in page.about["tabs"]
    (chart,) = [each for each in page.about["charts"] if each["name"] == "toy"]
    assert (chart["title"], chart["tab"]) == ("How long answers are", "toys")
    assert any("toy_tokens" in key for key in page.about["curves"]["keys"])
    assert any(each["claim"] == "toy_short" for each in page.about["verdicts"])
    # and every other table is there as well
    assert open_run(done.root).table("toy").num_rows == sum(map(sum, SETS.values()))


def test_the_table_of_every_stage_opens(done: Store):
    run = open_run(done.root)
    opened = {name: run.table(name, dataset="north") for name in tables()}
    assert all(table.num_rows > 0 for table in opened.values())
    assert {"numbers", "sampled", "saliency", "scores", "answer_means", "comparison"} <= set(opened)
    for name, (_, kind) in tables().items():
        assert set(run.documentation(name)) == set(kind.record.__dataclass_fields__), name
    assert set(opened["numbers"].column("position").to_pylist()) == {"answer_last", "final"}


def test_shards_made_again_by_a_stage_that_may_differ_outdate_all_that_was_made_of_them(done: Store):
    """Grades may be a judge's: another one outdates what was traced, and with it everything behind."""
    context = RunContext(done)
    later = {table.folder.name for table in context.later(Job(named("grades"), "north", "one"))}
    assert {
        "traces",
        "mass",
        "readouts-mlp-answer_last",
        "numbers-mlp-final",
        "scores-stack",
    } <= later
    assert not {"answers", "spans", "grades"} & later
    assert context.later(Job(named("traces"), "north", "one")) == []  # made again, they are the same


def test_a_detector_is_fitted_in_the_dtype_the_run_was_begun_in_and_the_model_examined(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With `dtype: auto`, what is fast here may not be what was fast where the run was begun."""
    from anchorscope.api.detectors import fit_run

    spec = study.models[0].model_copy(update={"dtype": "auto"})
    fields = {"models": [spec], "datasets": study.datasets[:1], "evidence": None}
    auto = study.model_copy(update=fields).based_at(study.base)
    monkeypatch.setattr("anchorscope.models.speed.fastest_dtype", lambda device: "bfloat16")
    with Store.writing(tmp_path / "run", auto) as store:
        Pipeline(store).make(until(auto, "traces"))
    loads: list[str] = []
    examined: list[str] = []
    monkeypatch.setattr("anchorscope.models.speed.fastest_dtype", lambda device: "float32")
    monkeypatch.setattr(
        context_module,
        "load_model",
        lambda spec, *args, **more: loads.append(spec.dtype) or load_model(spec, *args, **more),
    )
    monkeypatch.setattr("anchorscope.traces.health.require_health", lambda model, *args: examined.append(model.name))
    detector = fit_run(Store.open(tmp_path / "run"), "one", ["north"], "combined")
    assert detector.about.model["dtype"] == "bfloat16"
    assert set(loads) == {"bfloat16"}
    assert examined
    assert Store.open(tmp_path / "run").results("one", "north").complete(ANSWER_MEANS)


def test_a_second_eval_makes_nothing_again(done: Store, study: Study, monkeypatch: pytest.MonkeyPatch):
    def no_model(*args: object, **more: object) -> None:
        raise AssertionError("what is complete loads no model")

    monkeypatch.setattr(context_module, "load_model", no_model)
    path = done.results("one", "north").table(SCORES.part("stack")).path(0)
    before = path.stat().st_mtime_ns
    with Store.writing(done.root, study) as store:
        compare_run(store, EvalPlan(repeats=1), ["one"], ["north"], silent, lambda text: None)
    assert path.stat().st_mtime_ns == before


def test_a_detector_is_not_fitted_on_other_weights_than_the_runs(done: Store, study: Study, tmp_path: Path):
    root = tmp_path / "run"
    shutil.copytree(done.root, root)
    shutil.rmtree(root / "one" / "north" / "answer_means")
    manifest = root / "one" / "north" / "manifest.json"
    record = without_checksum(json.loads(manifest.read_text(encoding="utf-8")))
    record["tables"]["answers"]["inputs"]["model"]["files"] = {"model.safetensors": "0" * 64}
    manifest.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(StoreError, match="model"), Store.writing(root, study) as store:
        prepare(Pipeline(store), EvalPlan(), ["one"], ["north"])


def test_the_engine_is_part_of_no_run(study: Study, tmp_path: Path):
    """What a run directory says of an engine counts for nothing, so a directory from a stranger chooses none."""
    ray, root = EngineSpec(kind="ray", replicas=2), tmp_path / "s"
    with Store.writing(root, study.model_copy(update={"engine": ray}).based_at(study.base)) as store:
        assert store.study.engine == ray
    assert not any("ray" in path.read_text(encoding="utf-8") for path in root.iterdir())
    text = (root / "study.yaml").read_text(encoding="utf-8").partition(STUDY_SHA256.decode())[2]
    (root / "study.yaml").write_text(text.partition("\n")[2] + "engine: {kind: ray}\n", encoding="utf-8")
    assert Store.open(root).study.engine == EngineSpec()


def test_an_experiment_that_other_processes_do_not_know_is_refused_on_ray(done: Store, study: Study):
    pytest.importorskip("ray")
    asked = study.model_copy(update={"engine": EngineSpec(kind="ray")}).based_at(study.base)
    with pytest.raises(StudyError, match="the experiments toy are registered in this process alone"):
        Pipeline(Store(done.root, asked))


def test_several_answers_are_read_for_detectors_as_for_probes(done: Store):
    """The probes of the `within` table say the same of the states that detectors see."""
    point = done.study.traces.points[0]
    name = StateName("clean", *point)
    for dataset in SETS:
        cell = done.results("one", dataset)
        within = {(row.id, row.number): row for row in cell.table(WITHIN.at(point))}
        rows = list(cell.table(SEVERAL))
        assert within.keys() == {(row.id, row.number) for row in rows}
        assert len(rows) > 4
        traces = list(cell.table(TRACES))
        several = read_several(done, "one", dataset, read_labelled(done, "one", dataset).inputs)
        assert several is not None
        folds = folds_of(traces, done.study.probes, done.study.seed)[2]
        probes = load_probes(probes_stem(cell, point))[0]
        conditions = cell.entry(WITHIN.at(point))["inputs"]["within"]["conditions"]
        clean = np.array([within[row.id, row.number].logits for row in rows])[:, conditions.index("clean")]
        for layer, of_layer in enumerate(probes):
            states = several.inputs.state(name).layer(layer)
            read = read_out_some(of_layer, states[:, None], folds, several.question)[:, 0, :, 0]
            np.testing.assert_allclose(read.T, clean[:, :, layer], atol=2e-3, rtol=2e-3)
        scored = read_several_scores(done, "one", dataset, read_labelled(done, "one", dataset).inputs)
        assert scored is not None
        assert {"logprob_min", "single_layer", "combined"} <= set(scored.scores)
        summed = [sum(row.logprobs) for row in rows]
        assert scored.known[:, 2] == pytest.approx(summed)
        assert [within[row.id, row.number].min_logprob for row in rows] == pytest.approx(scored.known[:, 1], abs=1e-5)
