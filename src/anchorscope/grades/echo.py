"""What a question offers to choose from: `A or B`, `A vs B`, `between A and B`, `A, B or C`, and yes or no.

An answer that only repeats the question says nothing, unless the question asked to choose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.grades.fold import Word
from anchorscope.grades.normalise import ARTICLES

YES_NO = frozenset({"yes", "no"})
_BETWEEN = re.compile(r"\b(?:between|both|either|of the two|which of|who of|out of|among)\b", re.IGNORECASE)
_JOINTS = frozenset({"or", "vs", "versus", "v"})
_NEAR = 6  # words a choice may begin or end away from `or`: "the band Blur", "Blur (the band)"
_STOP = re.compile(r"[?;!]|,\s+(?:which|who|what|whose|where|when|that|is|are|was|were|did|do|does)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Choices:
    """The stretches of a question in which its choices stand, as words."""

    stretches: tuple[tuple[str, ...], ...]
    """Each without articles."""

    def offer(self, words: Sequence[str]) -> bool:
        """Whether these words are among the choices; yes and no always are."""
        return YES_NO.issuperset(words) or any(_within(words, stretch) for stretch in self.stretches)

    def several(self, words: Sequence[str]) -> bool:
        """Whether these words name choices from either side of a joint, and join them again."""
        if not _JOINTS.intersection(words) or len(self.stretches) < 2:
            return False
        at = next(i for i, word in enumerate(words) if word in _JOINTS)
        sides = (set(words[:at]) - ARTICLES, set(words[at + 1 :]) - ARTICLES)
        return all(side and any(side <= set(stretch) for stretch in self.stretches) for side in sides)


def _within(words: Sequence[str], stretch: Sequence[str]) -> bool:
    return any(stretch[i] == words[0] and set(words) <= set(stretch) for i in range(len(stretch)))


def choices(words: Sequence[Word], question: str) -> Choices:
    """The choices of a question, from its comparable words and their places in it."""
    joints = [i for i, w in enumerate(words) if w.text in _JOINTS]
    if not joints and _BETWEEN.search(question):
        joints = [i for i, w in enumerate(words) if w.text == "and"]
    stretches = []
    for joint in joints:
        before = _reach(words, question, joint, -1)
        after = _reach(words, question, joint, +1)
        stretches += [tuple(before), tuple(after)]
    return Choices(tuple(stretch for stretch in stretches if stretch))


def _reach(words: Sequence[Word], question: str, joint: int, step: int) -> list[str]:
    """The words on one side of a joint: up to six, further over commas (`A, B or C`), not over the end of a clause."""
    reached: list[str] = []
    at, left = joint + step, _NEAR
    while 0 <= at < len(words) and left > 0:
        inner = words[min(at, at - step)], words[max(at, at - step)]
        gap = question[inner[0].end : inner[1].start]
        following = question[inner[0].end :]
        if reached and _STOP.match(following.lstrip()):
            break
        if "," in gap:
            left = _NEAR
        if words[at].text not in ARTICLES:
            reached.append(words[at].text)
            left -= 1
        at += step
    return reached
