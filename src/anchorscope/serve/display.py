"""Which answers may be shown, by their verdicts. It knows no gateway, so that every guardrail can share it.

What is not known is not shown: an answer without a verdict, a verdict that cannot be read, and a decision that is not
in the list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from anchorscope.detectors.reasons import CODES
from anchorscope.errors import AnchorscopeError
from anchorscope.serve.responses import FIELD, WORST

CANNOT_SAY = "cannot say"
ACTIONS = ("block", "replace", "tag")
NO_VERDICT = {"decision": CANNOT_SAY, "reason": "the response has no verdict that can be read", "code": ""}
"""What a client is told of an answer that has no verdict. No setting shows such an answer."""


@dataclass(frozen=True)
class DisplayPolicy:
    """What happens to answers."""

    show: Collection[str] = ("pass",)
    """Decisions that are shown, and codes for which *cannot say* is shown, such as `no_flag`."""
    otherwise: str = "block"
    """What happens to all other answers (ACTIONS)."""
    text: str = "This answer is not shown, because it could not be confirmed."
    """What replaces the text of an answer."""

    def __post_init__(self) -> None:
        known = {*WORST, *CODES.values()}
        if isinstance(self.show, str) or not set(self.show) <= known:
            raise AnchorscopeError(
                f"show is a list of decisions and codes, not {self.show!r}", f"Known: {sorted(known)}"
            )
        if self.otherwise not in ACTIONS:
            raise AnchorscopeError(f"otherwise is one of {', '.join(ACTIONS)}, not {self.otherwise!r}")
        if not isinstance(self.text, str):
            raise AnchorscopeError(f"text is a sentence, not {self.text!r}")

    def shows(self, verdict: Mapping[str, Any] | None) -> bool:
        """Whether an answer with this verdict may be shown."""
        if verdict is None:
            return False
        decision = verdict["decision"]
        return decision in self.show or (decision == CANNOT_SAY and verdict.get("code") in self.show)


def verdict_of(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """The verdict on a choice, if there is exactly one that can be read.

    Gateways move fields that they do not know into `provider_specific_fields`.
    """
    moved = choice.get("provider_specific_fields")
    places = [choice, moved] if isinstance(moved, Mapping) else [choice]
    verdicts = [place[FIELD] for place in places if FIELD in place]
    if not verdicts or any(verdict != verdicts[0] for verdict in verdicts):
        return None
    (verdict, *_) = verdicts
    if not isinstance(verdict, dict) or verdict.get("decision") not in WORST:
        return None
    return verdict if isinstance(verdict.get("code", ""), str) else None
