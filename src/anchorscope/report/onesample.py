"""One sample under every condition, as a person sees it: printed, drawn, or in a notebook."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorscope.spans.record import Spans
from anchorscope.study.terms import Condition, Position, Site

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
    """As it was asked."""
    answer: str
    """As it was given."""
    tokens: list[str]
    """The tokens after the shared prefix, as text."""
    first: int
    """The place of the first of them in the sequence."""
    spans: Spans
    """Which tokens are what."""
    site: Site
    """Where activations were read."""
    position: Position
    """At which token."""
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
