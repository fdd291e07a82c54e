"""Text to comparable words, each with its place in the original text.

Two writings of one answer (accents, hyphens, U.S. and US, twenty-one and 21, plural) become the same words. Every
step keeps the character range a word came from, since spans and read positions are found in the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple


class Word(NamedTuple):
    """A comparable word and the range [start, end) of the text it was read from."""

    text: str
    start: int
    end: int


ARTICLES = frozenset({"a", "an", "the"})
_PARTS = frozenset(
    [
        "season",
        "series",
        "episode",
        "chapter",
        "act",
        "scene",
        "book",
        "volume",
        "part",
        "grade",
        "round",
        "week",
        "day",
    ]
)

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINAL_UNITS = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
]
_SMALL = {w: i for i, w in enumerate(_UNITS)} | {w: 10 * i for i, w in enumerate(_TENS, 2)}
_ORDINALS = {w: i for i, w in enumerate(_ORDINAL_UNITS)} | {w[:-1] + "ieth": 10 * i for i, w in enumerate(_TENS, 2)}
_NUMBER_STARTS = _SMALL.keys() | _ORDINALS.keys()
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ROMAN = re.compile(r"(?=[ivx]{2})(x{0,3})(ix|iv|v?i{0,3})")
_ROMAN_DIGITS = {"": 0, "i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9}
_ORDINAL_DIGITS = re.compile(r"([0-9]{1,15})(?:st|nd|rd|th)")
_NUMERAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,6})?")

_FOLDED_LETTERS = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "æ": "ae",
    "œ": "oe",
    "þ": "th",
    "ı": "i",
    "ʻ": "'",
    "ʼ": "'",
}
_SIGNS = {"’": "'", "‘": "'", "`": "'", "´": "'", "′": "'", "\u2212": "-", "‐": "-", "‑": "-"} | {
    c: c for c in "'.,-&%+#"
}
_ESCAPE = re.compile(r"\\[uU]([0-9a-fA-F]{4})|[Ââ](?=\u00a0\S)")  # the second is a UTF-8 space read as Latin-1
_W = r"[^\s'.,\-&%+#]"
_WORD = re.compile(
    rf"(?<!\S)-?[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?!{_W})"  # 1,000,000
    rf"|(?<!\S)-[0-9]+(?:\.[0-9]+)?(?!{_W})"  # -40, but not the hyphen of 1914-18
    rf"|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?!{_W})"
    rf"|[0-9]+(?:\.[0-9]+)+(?!{_W})"  # 3.5, and 1.2.3
    rf"|(?<!{_W})(?:[^\W\d_]\.){{2,}}(?:[^\W\d_](?!{_W}))?"  # U.S., F.B.I
    rf"|(?<!{_W})[a-z](?:\+\+|\+|\#)(?!{_W})"  # C++, C#, A+
    rf"|{_W}+(?:'{_W}+)*|[&%]"
)


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


def words(text: str, rules: Collection[str]) -> list[Word]:
    """All words of a text in comparable form, articles included; `rules` as in grading.RULES."""
    found = _split(text, rules)
    if "numbers" in rules:
        found = _ordinal_parts(_numbers(found))
    if "plural" in rules:
        found = [Word(singular(w.text), w.start, w.end) for w in found]
    return found


def content(found: Sequence[Word]) -> list[Word]:
    """Without articles; a last word stays, so that `vitamin A` is not `vitamin`, and `A` or `The The` has a word."""
    last = len(found) - 1
    return [w for i, w in enumerate(found) if w.text not in ARTICLES or i == last]


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


def _split(text: str, rules: Collection[str]) -> list[Word]:
    folded, starts, ends = _fold(text, "accents" in rules, "escapes" in rules)
    if "hyphens" not in rules:
        keep = [i for i, c in enumerate(folded) if c not in "'.,-+#"]
        folded, starts, ends = "".join(folded[i] for i in keep), [starts[i] for i in keep], [ends[i] for i in keep]
    found = []
    for match in _WORD.finditer(folded):
        word = match.group()
        if len(word) > 1 and word[-1] not in "+#":
            word = word.replace("'", "").replace(",", "")
            if not word[0].isdigit() and word[0] != "-":
                word = word.replace(".", "")
        found.append(Word(_SPELLED.get(word, word), starts[match.start()], ends[match.end() - 1]))
    return found


_SPELLED = {"&": "and", "%": "percent"}


@lru_cache(maxsize=16_384)
def _fold_character(char: str, accents: bool) -> str:
    """One character as lower-case letters, digits and the few signs that the word pattern reads; else a space."""
    folded = unicodedata.normalize("NFKD", char.casefold()).casefold()
    out = []
    for c in folded:
        mark = unicodedata.combining(c)
        if accents and (10 <= mark <= 36 or mark >= 200):
            continue  # accents, Hebrew and Arabic points; not the vowel signs and tones that make other words
        if c.isdecimal():
            c = str(unicodedata.decimal(c))
        category = unicodedata.category(c)
        if c in _SIGNS:
            out.append(_SIGNS[c])
        elif accents and c in _FOLDED_LETTERS:
            out.append(_FOLDED_LETTERS[c])
        elif c.isalnum() or category[0] == "M":
            out.append(c)
        elif category != "Cf":  # soft hyphens, joiners and direction marks are nothing
            out.append(" ")
    return "".join(out)


_ASCII = {i: _fold_character(chr(i), True) for i in range(128)}  # one for one, so places stay


def _fold(text: str, accents: bool, escapes: bool) -> tuple[str, Sequence[int], Sequence[int]]:
    """Folded text, and for each of its characters the range it stands for in `text`."""
    if text.isascii() and "\\" not in text:
        place = range(len(text))
        return text.translate(_ASCII), place, range(1, len(text) + 1)
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    while at < len(text):
        match = _ESCAPE.match(text, at) if escapes and text[at] in "\\Ââ" else None
        end = match.end() if match else at + 1
        char = (chr(int(match[1], 16)) if match[1] else " ") if match else text[at]
        piece = _fold_character(char, accents)
        if piece.isdigit() and out and out[-1][-1].isdigit() and unicodedata.decomposition(char).startswith("<super>"):
            piece = " " + piece  # 10² is not 102
        if piece:
            out.append(piece)
            starts += [at] * len(piece)
            ends += [end] * len(piece)
        elif ends:
            ends[-1] = end  # a mark belongs to its letter
        at = end
    return "".join(out), starts, ends


def _numbers(found: Sequence[Word]) -> list[Word]:
    """Number words, ordinals and Roman numerals as digits: 21, 3th (for third and 3rd), 1000000."""
    out: list[Word] = []
    at = 0
    while at < len(found):
        text, used = "", 0
        if found[at].text in _NUMBER_STARTS or found[at].text[-1].isdigit():
            text, used = _number_at([w.text for w in found[at : at + 12]])
        if used == 0:
            text, used = found[at].text, 1
            roman = _ROMAN.fullmatch(text)
            if roman:
                text = str(10 * len(roman[1]) + _ROMAN_DIGITS[roman[2]])
            elif ordinal := _ORDINAL_DIGITS.fullmatch(text):
                text = f"{ordinal[1]}th"
        out.append(Word(text, found[at].start, found[at + used - 1].end))
        at += used
    return out


def _number_at(texts: Sequence[str]) -> tuple[str, int]:
    """The number that starts here and how many words it takes; 0 where there is none."""
    first = texts[0]
    if first == "one" and texts[1:2] == ["of"]:
        return "", 0  # one of them
    total, current, last, scale = Fraction(0), None, "", 10**15
    used = 0
    value: int | None
    while used < len(texts):
        word = texts[used]
        if (value := _SMALL.get(word)) is not None:
            if current is None:
                current = Fraction(value)
            elif last == "hundred" or (last == "ten" and 0 < value < 10):
                current += value
            else:
                break
            last = "ten" if value >= 20 else "unit"
        elif (value := _ORDINALS.get(word)) is not None:
            if current is not None and not (last == "hundred" or (last == "ten" and 0 < value < 10)):
                break
            return f"{int(total + (current or 0)) + value}th", used + 1
        elif word == "hundred" and current is not None and last in ("unit", "ten", "digits") and current < 100:
            current, last = current * 100, "hundred"
        elif word in _SCALES and current is not None and _SCALES[word] < scale:
            scale = _SCALES[word]
            total, current, last = total + current * scale, None, "scale"
        elif used == 0 and _NUMERAL.fullmatch(word):
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


def _small(texts: Sequence[str]) -> bool:
    return bool(texts) and (texts[0] in _SMALL or texts[0] in _ORDINALS)


def _ordinal_parts(found: list[Word]) -> list[Word]:
    """`sixth season` as `season 6`."""
    out = list(found)
    for i, (word, after) in enumerate(pairwise(found)):
        if after.text in _PARTS and (ordinal := _ORDINAL_DIGITS.fullmatch(word.text)):
            out[i], out[i + 1] = Word(after.text, word.start, after.end), Word(ordinal[1], word.start, after.end)
    return out


class Date(NamedTuple):
    """A date of which the month or the day may be missing, and the words [first, last] it was read from."""

    year: int | None
    month: int | None
    day: int | None
    first: int
    last: int

    def agrees(self, other: Date) -> bool:
        """Whether no part that both have differs, and what both have says which date it is."""
        pairs = [(a, b) for a, b in zip(self[:3], other[:3], strict=True) if a is not None and b is not None]
        both_years = self.year is not None and other.year is not None
        return all(a == b for a, b in pairs) and (both_years or len(pairs) == 2)

    @property
    def precision(self) -> int:
        """How many of year, month and day are known."""
        return sum(part is not None for part in self[:3])


_MONTH_LINE = "january february march april may june july august september october november december"
_MONTH_NAMES = _MONTH_LINE.split()
_MONTHS = (
    {w: i for i, w in enumerate(_MONTH_NAMES, 1)} | {w[:3]: i for i, w in enumerate(_MONTH_NAMES, 1)} | {"sept": 9}
)
_DAY = re.compile(r"(0?[1-9]|[12][0-9]|3[01])(?:th)?")
_YEAR = re.compile(r"1[0-9]{3}|20[0-9]{2}")


def dates(found: Sequence[Word], text: str) -> list[Date]:
    """The dates among the words, in any order of their parts; 10/09/2001 is given both ways."""
    out: list[Date] = []
    at = 0
    while at < len(found):
        here = _numeric_dates(found, at, text) or _written_date(found, at)
        out += here
        at = here[0].last + 1 if here else at + 1
    return out


def _written_date(found: Sequence[Word], at: int) -> list[Date]:
    texts = [w.text for w in found[at : at + 4]] + [""] * 4
    month, day, used = _MONTHS.get(texts[0]), None, 1
    if month and (match := _DAY.fullmatch(texts[1])):
        day, used = int(match[1]), 2
    elif not month and (match := _DAY.fullmatch(texts[0])):
        of = texts[1] == "of"
        month, day, used = _MONTHS.get(texts[1 + of]), int(match[1]), 2 + of
        if not month:
            return []
    if month:
        year = int(texts[used]) if _YEAR.fullmatch(texts[used]) else None
        used += year is not None
        return [Date(year, month, day, at, at + used - 1)] if used > 1 else []
    return [Date(int(texts[0]), None, None, at, at)] if _YEAR.fullmatch(texts[0]) else []


def _numeric_dates(found: Sequence[Word], at: int, text: str) -> list[Date]:
    three = found[at : at + 3]
    if len(three) < 3 or not three[0].text[0].isdigit():
        return []
    if any(text[a.end : b.start] not in ("/", "-", ".") for a, b in pairwise(three)):
        return []
    a, b, c = (w.text for w in three)
    if _YEAR.fullmatch(a):
        a, b, c = b, c, a
        both = False
    else:
        both = True
    if not (_YEAR.fullmatch(c) and a.isdecimal() and b.isdecimal() and len(a) < 3 and len(b) < 3):
        return []
    ways = {(int(a), int(b)), (int(b), int(a))} if both else {(int(a), int(b))}
    return [Date(int(c), m, d, at, at + 2) for m, d in sorted(ways) if 1 <= m <= 12 and 1 <= d <= 31]
