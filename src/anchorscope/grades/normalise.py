"""Text to comparable words, each with its place in the original text.

Two writings of one answer (accents, hyphens, U.S. and US, twenty-one and 21, plural) become the same words. Every
step keeps the character range a word came from, since spans and read positions are found in the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache

from anchorscope.grades.fold import Word, split_words
from anchorscope.grades.numerals import as_digits, ordinals_last

ARTICLES = frozenset({"a", "an", "the"})


def plain_words(text: str) -> list[Word]:
    """The baseline: NFKC, lower case, punctuation and symbols deleted in place, articles dropped."""
    words: list[Word] = []
    for chunk in re.finditer(r"\S+", text):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", chunk.group()).casefold())
        kept = "".join(c for c in folded if unicodedata.category(c)[0] not in "PS")
        for part in kept.split():  # NFKC can make a space: U+00A8 does
            if part not in ARTICLES:
                words.append(Word(part, *chunk.span()))
    return words


def comparable_words(text: str, rules: Collection[str]) -> list[Word]:
    """All words of a text in comparable form, articles included; `rules` as in grading.RULES."""
    words = split_words(text, rules)
    if "numbers" in rules:
        words = ordinals_last(as_digits(words))
    if "plural" in rules:
        words = [Word(singular(w.text), w.start, w.end) for w in words]
    return words


def content(words: Sequence[Word]) -> list[Word]:
    """Without articles; a last word stays, so that `vitamin A` is not `vitamin`, and `A` or `The The` has a word."""
    last = len(words) - 1
    return [w for i, w in enumerate(words) if w.text not in ARTICLES or i == last]


@lru_cache(maxsize=65_536)
def singular(word: str) -> str:
    """A plural or genitive s taken off; crude, but the same on both sides of a comparison."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")) or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zes")) else word[:-1]


def symbols(text: str) -> list[Word]:
    """Chunks between white space, for answers such as `$` or `?` that have no word at all."""
    chunks = re.finditer(r"\S+", text)
    folded = [(unicodedata.normalize("NFKC", m.group().casefold()).casefold(), m.span()) for m in chunks]
    return [Word("".join(chunk.split()), *span) for chunk, span in folded]  # NFKC can make a space
