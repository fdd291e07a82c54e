"""Number words, ordinals and Roman numerals as digits: twenty-one is 21, third is 3rd, World War II is 2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from anchorscope.grades.fold import Word


def _listed(words: str) -> list[str]:
    return words.split()


_PARTS = frozenset(_listed("season series episode chapter act scene book volume part grade round week day"))
_UNITS = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _listed("twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINAL_UNITS = _listed(
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth"
)
_SMALL = {w: i for i, w in enumerate(_UNITS)} | {w: 10 * i for i, w in enumerate(_TENS, 2)}
_ORDINALS = {w: i for i, w in enumerate(_ORDINAL_UNITS)} | {w[:-1] + "ieth": 10 * i for i, w in enumerate(_TENS, 2)}
_NUMBER_STARTS = _SMALL.keys() | _ORDINALS.keys()
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ROMAN = re.compile(r"(?=[ivx]{2})(x{0,3})(ix|iv|v?i{0,3})")
_ROMAN_DIGITS = {"": 0, "i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9}
_ORDINAL_DIGITS = re.compile(r"([0-9]{1,15})(?:st|nd|rd|th)")
_NUMERAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,6})?")


def as_digits(words: Sequence[Word]) -> list[Word]:
    """Number words, ordinals and Roman numerals as digits: 21, 3th (for third and 3rd), 1000000."""
    out: list[Word] = []
    at = 0
    while at < len(words):
        text, used = "", 0
        if words[at].text in _NUMBER_STARTS or words[at].text[-1].isdigit():
            text, used = _number_at([w.text for w in words[at : at + 12]])
        if used == 0:
            text, used = _numeral(words[at].text), 1
        out.append(Word(text, words[at].start, words[at + used - 1].end))
        at += used
    return out


def _numeral(text: str) -> str:
    """A Roman numeral as digits, an ordinal in digits with `th`, any other word as it is."""
    if roman := _ROMAN.fullmatch(text):
        return str(10 * len(roman[1]) + _ROMAN_DIGITS[roman[2]])
    ordinal = _ORDINAL_DIGITS.fullmatch(text)
    return f"{ordinal[1]}th" if ordinal else text


def _number_at(texts: Sequence[str]) -> tuple[str, int]:
    """The number that starts here and how many words it takes; 0 where there is none.

    Read as people say it: what is below a thousand is gathered in `current`, and a scale (thousand, million) moves it
    into `total`. `last` says what kind of word came before, which decides what may follow.
    """
    if texts[0] == "one" and texts[1:2] == ["of"]:
        return "", 0  # one of them
    total, current, last, scale = Fraction(0), None, "", 10**15
    used = 0
    value: int | None
    while used < len(texts):
        word = texts[used]
        if (value := _SMALL.get(word)) is not None:  # twenty, one
            if current is None:
                current = Fraction(value)
            elif _joins(last, value):
                current += value
            else:
                break
            last = "ten" if value >= 20 else "unit"
        elif (value := _ORDINALS.get(word)) is not None:  # first: ends the number
            if current is not None and not _joins(last, value):
                break
            return f"{int(total + (current or 0)) + value}th", used + 1
        elif word == "hundred" and current is not None and last in ("unit", "ten", "digits") and current < 100:
            current, last = current * 100, "hundred"
        elif word in _SCALES and current is not None and _SCALES[word] < scale:
            scale = _SCALES[word]
            total, current, last = total + current * scale, None, "scale"
        elif used == 0 and _NUMERAL.fullmatch(word):  # 1.5 million
            current, last = Fraction(word), "digits"
        elif word == "and" and last in ("hundred", "scale") and _small(texts[used + 1 : used + 2]):
            last = "hundred" if current is not None else last
        else:
            break
        used += 1
    if used == 0 or (used == 1 and last == "digits"):
        return "", 0
    total += current or 0
    return (str(int(total)) if total.denominator == 1 else str(float(total))), used


def _joins(last: str, value: int) -> bool:
    """Whether a number word goes on with the number: after a hundred any, after a ten a digit."""
    return last == "hundred" or (last == "ten" and 0 < value < 10)


def _small(texts: Sequence[str]) -> bool:
    return bool(texts) and (texts[0] in _SMALL or texts[0] in _ORDINALS)


def ordinals_last(words: list[Word]) -> list[Word]:
    """`sixth season` as `season 6`."""
    out = list(words)
    for i, (word, after) in enumerate(pairwise(words)):
        if after.text in _PARTS and (ordinal := _ORDINAL_DIGITS.fullmatch(word.text)):
            out[i], out[i + 1] = Word(after.text, word.start, after.end), Word(ordinal[1], word.start, after.end)
    return out
