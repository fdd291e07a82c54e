"""What a stage that computes with a model is made with (run/context.py implements it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.store.stage import Context, Needs
from anchorscope.study import Study

K = TypeVar("K")


class ModelContext(Context, Protocol):
    """One process's hold on a run, and on one model at a time."""

    def model(self, name: str, needs: Needs = "weights") -> Model:
        """The model of this name in the study, or of this id: loaded as far as `needs` says, and examined if used."""

    def prompter(self, name: str, needs: Needs = "weights") -> Prompter:
        """What puts questions to the model, as the study says."""

    def resource(self, kind: Callable[[Model, Study], K], name: str, needs: Needs = "weights") -> K:
        """What is made of the model once and kept as long as the model is; its `close` is called then."""

    def right(self, question: Any, answer: Any) -> bool:
        """Whether an answer is taken for right, for an early look: by rules where a judge would have to be asked."""
