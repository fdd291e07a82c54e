"""Which characters of a text each token touches, found by decoding and checked against the text.

A tokenizer's own offsets are not used: they come back zero-width or shifted in known cases. Decoding cannot lie
in that way: what the tokens say must be the text, character by character, or there is no alignment. Three facts
of real decoders shape the code:

- SentencePiece-style ones drop the leading space of the first token they are given, so tokens in the middle of a
  text are decoded after an *anchor*, the token before them.
- A token may end inside a character; the decoder then shows U+FFFD, one or several, at the end.
- With byte fallback a run of byte tokens is shown as U+FFFD as a whole while its last character is unfinished, so
  the decoded text may shrink for a moment. Characters once complete stay complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

Range = tuple[int, int]
HALF = "\ufffd"  # what a decoder shows for a part of a character

_pieces: WeakKeyDictionary[Any, dict[int, str | None]] = WeakKeyDictionary()


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of some tokens, exactly: special tokens shown, spaces left as they are."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def align(tokenizer: Any, ids: Sequence[int], text: str, *, token: int = 0, char: int = 0) -> list[Range] | None:
    """The half-open character range of `text` that each of `ids[token:]` touches; None if it does not round-trip.

    `token` starts at `char` in `text`; what stands before is trusted, and costs nothing. To skip a BOS that is not in
    the text, give `token=1`. A character of several tokens is in the range of each. A text that holds U+FFFD has no
    alignment: in it half a character and a whole one look alike.
    """
    if HALF in text:
        return None
    ids = list(ids)
    pieces = _pieces.setdefault(tokenizer, {})
    anchor = _anchor(tokenizer, ids, token) if char else token
    ranges: list[Range] = []
    at, i, run = char, token, anchor
    while i < len(ids):
        # what a token says at the start of the text is not what it says inside ("Q" and " Q", in Llama 2)
        piece = _piece(tokenizer, pieces, ids[i]) if char or i > token else None
        if piece is not None and text.startswith(piece, at):
            ranges.append((at, at + len(piece)))
            run, i, at = i, i + 1, at + len(piece)
            continue
        window = _run(tokenizer, ids, text, run, i, at)
        if window is None:
            return None
        ranges += window
        run, i, at = i, i + len(window), window[-1][1]
    base = decode(tokenizer, ids[anchor:token])
    if at != len(text) or decode(tokenizer, ids[anchor:]) != base + text[char:]:
        return None
    return ranges


def continuation(tokenizer: Any, ids: Sequence[int], token: int) -> str | None:
    """What `ids[token:]` add to the text of the tokens before; None if they finish one of its characters."""
    anchor = _anchor(tokenizer, list(ids), token)
    base, whole = decode(tokenizer, ids[anchor:token]), decode(tokenizer, ids[anchor:])
    return whole[len(base) :] if whole.startswith(base) else None


def _anchor(tokenizer: Any, ids: list[int], token: int) -> int:
    """Where to begin decoding so that `token` is not the first and no character is cut."""
    anchor = max(token - 1, 0)
    while anchor and HALF in decode(tokenizer, ids[anchor:token]):
        anchor -= 1
    return anchor


def _piece(tokenizer: Any, pieces: dict[int, str | None], token_id: int) -> str | None:
    """What a token says inside a text, remembered; None if that is not whole characters."""
    if token_id not in pieces:
        once, twice = decode(tokenizer, [token_id]), decode(tokenizer, [token_id, token_id])
        pieces[token_id] = None if HALF in twice or not twice.startswith(once) else twice[len(once) :]
    return pieces[token_id]


def _run(tokenizer: Any, ids: list[int], text: str, anchor: int, start: int, char: int) -> list[Range] | None:
    """Decode growing windows from `start` until one ends with a whole character."""
    base = decode(tokenizer, ids[anchor:start])
    ranges: list[Range] = []
    done = char  # up to here characters are complete
    for end in range(start + 1, len(ids) + 1):
        window = decode(tokenizer, ids[anchor:end])
        shown = window.rstrip(HALF)
        whole = char + len(shown) - len(base)
        if not (base + text[char : max(whole, char)]).startswith(shown):
            return None
        before, done = done, max(done, whole)
        unfinished = len(window) > len(shown)
        ranges.append((before, done + unfinished))
        if not unfinished:
            return ranges
    return None
