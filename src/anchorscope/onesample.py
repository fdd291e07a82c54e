"""One question and one answer under every condition: for a notebook, and for understanding.

With a run's probes it shows P(correct) by layer; without, how far each cut moves the state that probes would read.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.given import answer_ids
from anchorscope.conditions import CONDITIONS, Condition, Position, place_of, stream_of
from anchorscope.errors import ModelError, ProbeError
from anchorscope.knockout import Into
from anchorscope.models.load import Model, load_model
from anchorscope.models.sites import Site
from anchorscope.probes import load_probes
from anchorscope.prompts import Prompter
from anchorscope.questions.question import Question
from anchorscope.readouts import read_out_new
from anchorscope.spans import Spans, find_spans
from anchorscope.store import Store
from anchorscope.study import ModelSpec, PromptSpec, Study
from anchorscope.tracing import Read, Tracer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES: dict[Condition, tuple[str, str]] = {
    "clean": ("#222222", "-"),
    "knockout": ("#1f6fc4", "-"),
    "control_question": ("#e08a1e", "--"),
    "control_random": ("#b0771e", ":"),
    "answer_only": ("#7a7a7a", "-."),
}
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class TracedSample:
    """One sample under every condition. Print it, draw it, or leave it as the last line of a notebook cell."""

    question: str
    answer: str
    tokens: list[str]
    """The tokens after the shared prefix, as text."""
    first: int
    """The place of the first of them in the sequence."""
    spans: Spans
    site: Site
    position: Position
    curves: dict[Condition, NDArray[np.float64]]
    """(layer,) by condition: P(correct) from a run's probes; else the relative distance from the clean state."""
    probed: bool
    """Whether the curves are P(correct)."""

    @property
    def measure(self) -> str:
        """What the curves are."""
        return "P(correct)" if self.probed else "distance from the clean state"

    def __str__(self) -> str:
        marked = "".join(self._marked(place, text, "[", "]", "<", ">") for place, text in self._placed())
        lines = [marked.strip(), "[exact question tokens]  <exact answer tokens>", ""]
        lines.append(f"{self.measure} by layer, {self.site} at {self.position}")
        top = 1.0 if self.probed else max(float(curve.max()) for curve in self.curves.values()) or 1.0
        for condition, curve in self.curves.items():
            bars = "".join(BARS[min(8, round(8 * float(value) / top))] for value in curve)
            lines.append(f"  {condition:17} {bars}  {curve.min():.2f} … {curve.max():.2f}")
        return "\n".join(lines)

    def _placed(self) -> list[tuple[int, str]]:
        return [(self.first + i, text) for i, text in enumerate(self.tokens)]

    def _marked(self, place: int, text: str, *signs: str) -> str:
        if place in self.spans.exact_question:
            return f"{signs[0]}{text}{signs[1]}"
        return f"{signs[2]}{text}{signs[3]}" if place in self.spans.exact_answer else text

    def draw(self) -> Figure:
        """The curves by layer, the tokens above them."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for condition, curve in self.curves.items():
            colour, style = LINES.get(condition, ("#999999", ":"))
            label = condition.replace("_", " ")
            axes.plot(np.arange(len(curve)), curve, color=colour, linestyle=style, label=label, linewidth=1.6)
        axes.set_xlabel("Layer")
        axes.set_ylabel(self.measure)
        if self.probed:
            axes.set_ylim(0, 1)
            axes.axhline(0.5, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        title = f"{self.question}  {self.answer}".replace("$", r"\$")
        axes.set_title(title if len(title) < 70 else title[:69] + "…", fontsize=9, loc="left")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        return figure

    def _repr_html_(self) -> str:
        blue, red = '<b style="color:#1f6fc4">', '<b style="color:#c2389a">'
        marked = "".join(
            self._marked(place, html.escape(text), blue, "</b>", red, "</b>") for place, text in self._placed()
        )
        picture = io.StringIO()
        self.draw().savefig(picture, format="svg", metadata={"Date": None})
        drawn = picture.getvalue()
        return f'<p style="white-space:pre-wrap">{marked.strip()}</p>{drawn[drawn.index("<svg") :]}'


def trace_one(
    model: Model | str | Path,
    question: str,
    answer: str,
    run: str | Path | None = None,
    dataset: str | None = None,
    site: Site = "mlp",
    position: Position = "answer_last",
    into: Into | None = None,
    prompt: PromptSpec | None = None,
    conditions: Sequence[Condition] = ("clean", "knockout", "control_question", "control_random", "answer_only"),
) -> TracedSample:
    """Trace one question and answer; see `anchorscope.trace`."""
    named = model.spec if isinstance(model, Model) else ModelSpec.model_validate({"id": str(model)})
    past = _Past.of(Path(run), named, dataset, site, position) if run is not None else None
    loaded = model if isinstance(model, Model) else load_model(past.spec if past else named)
    # the run's probes know the states of no other prompt and cut
    prompt = prompt or (past.study.prompt_for(past.spec) if past else PromptSpec())
    into = into or (past.study.traces.into if past else "after")
    prompter = Prompter(loaded.tokenizer, prompt, loaded.wants_bos)
    ids = prompter(question)
    answered = answer_ids(prompter, ids, answer.strip())
    row = Question(question, question, [answer], None, None, None, None, question, None, "{}")
    rule, seed = (past.study.spans.exact_question, past.study.seed) if past else ("content", 0)
    spans = find_spans(ids, answered, answer.strip(), row, loaded.tokenizer, rule, seed=seed)
    if spans.dropped is not None:
        raise ModelError(f"this question and answer cannot be traced: {spans.dropped}")
    wanted = [condition for condition in CONDITIONS if condition in conditions or condition == "clean"]
    shared = prompter.shared_ids
    tracer = Tracer(loaded, shared, [site])
    whole = [*ids.ids, *answered]
    streams = [stream_of(condition, whole, spans, len(shared), into, tracer.layers) for condition in wanted]
    reads = [Read(0, i, place_of(condition, spans, position)) for i, condition in enumerate(wanted)]
    states = tracer([streams], reads)[site].double().numpy()  # (layer, condition, width)
    probed = past is not None
    curves = _probabilities(states, past.probes) if past else _distances(states)
    tokens = [loaded.tokenizer.decode([token]) for token in whole[len(shared) :]]
    lines = {condition: curves[:, i] for i, condition in enumerate(wanted) if probed or condition != "clean"}
    return TracedSample(question, answer.strip(), tokens, len(shared), spans, site, position, lines, probed)


def _distances(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each condition is from the clean state, relative to that state: (layer, condition)."""
    clean = states[:, :1]
    found: NDArray[np.float64] = np.linalg.norm(states - clean, axis=2) / np.linalg.norm(clean, axis=2)
    return found


def _probabilities(states: NDArray[np.float64], probes: Path) -> NDArray[np.float64]:
    """P(correct), the mean over the run's probes, which were fitted on all training questions: (layer, condition)."""
    layers, _ = load_probes(probes)
    logits = [read_out_new(each, state)[:, 0].mean(axis=0) for each, state in zip(layers, states, strict=True)]
    found: NDArray[np.float64] = 1 / (1 + np.exp(-np.stack(logits)))
    return found


@dataclass(frozen=True)
class _Past:
    """A run whose probes are used, and with them its prompt and its way of cutting."""

    study: Study
    spec: ModelSpec
    probes: Path

    @classmethod
    def of(cls, run: Path, model: ModelSpec, dataset: str | None, site: Site, position: Position) -> _Past:
        """Find the run's probes for a model: by its name, or by the folder or id it was loaded from."""
        study = Store.open(run).study
        names = [spec for spec in study.models if model.name == spec.name or model.id == spec.id]
        if not names:
            listed = ", ".join(spec.name for spec in study.models)
            raise ProbeError(f"{run} has no model {model.name}", f"It has: {listed}.")
        files = sorted((run / names[0].name).glob(f"*/probes/{site}-{position}.json"))
        sets = [path.parents[1].name for path in files]
        if not sets or (dataset is not None and dataset not in sets):
            where = f" on {dataset}" if dataset else ""
            raise ProbeError(f"{run} has no probes of {names[0].name} for {site} at {position}{where}", _RUN)
        if dataset is None and len(sets) > 1:
            raise ProbeError(f"{run} has probes of several sets", f"Say which: dataset= one of {', '.join(sets)}.")
        return cls(study, names[0], files[sets.index(dataset or sets[0])].with_suffix(""))


_RUN = "Run: anchorscope run STUDY"
