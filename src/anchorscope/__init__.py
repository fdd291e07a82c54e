"""anchorscope: by which route do a language model's hidden states know that its answer is true?

The public names are those below; everything else is private and may change.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.errors import AnchorscopeError
from anchorscope.run.studyfile import load_study
from anchorscope.study import DatasetSpec, ModelSpec, PromptSpec, Study

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.report.onesample import TracedSample


__version__ = "0.1.0.dev0"


def trace(model: Model | str | Path, question: str, answer: str, **options: Any) -> TracedSample:
    """Trace one question and answer: clean, knocked out, and under the controls.

    `model` is a hub id, a folder, a .gguf file, or a loaded Model. `run=` takes a run directory whose probes give
    P(correct) by layer (and `dataset=` which of its sets'); without it the curves say how far each cut moves the state.
    A question the run was fitted on is read by probes that know it. More options: site, position, into, prompt,
    conditions. The result prints, draws and shows itself in a notebook.
    """
    from anchorscope.run.onesample import trace_one

    return trace_one(model, question, answer, **options)


__all__ = ["AnchorscopeError", "DatasetSpec", "ModelSpec", "PromptSpec", "Study", "__version__", "load_study", "trace"]
