"""One sample under every condition, printed, drawn or shown in a notebook."""

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
    from matplotlib.axes import Axes
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
    """The question, as it was asked."""
    answer: str
    """The answer, as it was given."""
    tokens: list[str]
    """The tokens after the shared prefix, as text."""
    first: int
    """Position in the sequence of the first of these tokens."""
    spans: Spans
    """Positions of the exact tokens and of the control tokens."""
    site: Site
    """Site at which activations were read."""
    position: Position | int
    """Token at which activations were read: a named position, or an index in the sequence."""
    curves: dict[Condition, NDArray[np.float64]]
    """(layer,) by condition: P(correct) from a run's probes, else the relative distance from the clean state."""
    states: dict[Condition, NDArray[np.float64]]
    """(layer, width) by condition: activations."""
    probed: bool
    """Whether the curves are P(correct) from a run's probes."""

    @property
    def measure(self) -> str:
        """What the curves show, in words."""
        return "P(correct)" if self.probed else "distance from the clean state"

    def lines(self) -> dict[str, tuple[Condition, NDArray[np.float64]]]:
        """What is shown: a name, the condition and its curve. Two controls that cut the same tokens are one line."""
        spans, named = self.spans, {name.replace("_", " "): (name, curve) for name, curve in self.curves.items()}
        pairs = (spans.control_question_control, spans.control_random_control)
        if pairs[0] == pairs[1] and {"control_question", "control_random"} <= set(self.curves):
            named = {
                "both controls" if k == "control question" else k: v for k, v in named.items() if k != "control random"
            }
        return named

    def __str__(self) -> str:
        marked = "".join(self._marked(place, text, "[", "]", "<", ">") for place, text in self._placed())
        lines = [marked.strip(), "[exact question tokens]  <exact answer tokens>", ""]
        lines.append(f"{self.measure} by layer, {self.site} at {self.position}")
        top = 1.0 if self.probed else max(float(curve.max()) for curve in self.curves.values()) or 1.0
        for name, (_, curve) in self.lines().items():
            bars = "".join(BARS[min(8, round(8 * float(value) / top))] for value in curve)
            note = "  (they cut the same tokens here)" if name == "both controls" else ""
            lines.append(f"  {name:17} {bars}  {curve.min():.2f} … {curve.max():.2f}{note}")
        return "\n".join(lines)

    def _placed(self) -> list[tuple[int, str]]:
        return [(self.first + i, text) for i, text in enumerate(self.tokens)]

    def _marked(self, place: int, text: str, *signs: str) -> str:
        if place in self.spans.exact_question:
            return f"{signs[0]}{text}{signs[1]}"
        return f"{signs[2]}{text}{signs[3]}" if place in self.spans.exact_answer else text

    def draw(self, axes: Axes | None = None) -> Figure:
        """Draw the curves by layer: as a figure that a notebook shows, or on the given axes."""
        from matplotlib.ticker import MaxNLocator

        from anchorscope.report.draw.lines import ShownFigure, figure_under

        if axes is None:
            figure = ShownFigure(figsize=(5.2, 3.2), layout="constrained")
            self.draw(figure.add_subplot())
            figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
            return figure
        for label, (condition, curve) in self.lines().items():
            colour, style = LINES.get(condition, ("#999999", ":"))
            axes.plot(np.arange(len(curve)), curve, color=colour, linestyle=style, label=label, linewidth=1.6)
        axes.set_xlabel("Layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_ylabel(self.measure)
        if self.probed:
            axes.set_ylim(0, 1)
            axes.axhline(0.5, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        title = f"{self.question}  {self.answer}".replace("$", r"\$")
        axes.set_title(title if len(title) < 70 else title[:69] + "…", fontsize=9, loc="left")
        return figure_under(axes)

    def _repr_html_(self) -> str:
        blue, red = '<b style="color:#1f6fc4">', '<b style="color:#c2389a">'
        marked = "".join(
            self._marked(place, html.escape(text), blue, "</b>", red, "</b>") for place, text in self._placed()
        )
        picture = io.StringIO()
        self.draw().savefig(picture, format="svg", metadata={"Date": None})
        drawn = picture.getvalue()
        return f'<p style="white-space:pre-wrap">{marked.strip()}</p>{drawn[drawn.index("<svg") :]}'
