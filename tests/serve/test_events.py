"""Server-sent events: every legal form is read alike, wherever chunks end, and written in one form."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.serve.events import Event, EventSplitter

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


def read_plainly(stream: bytes) -> list[bytes]:
    """The texts of a stream's events by the specification, from all of its bytes at once."""
    texts: list[bytes] = []
    lines: list[bytes] = []
    for line in [*re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        if not line and lines:
            texts.append(b"\n".join(lines))
            lines = []
    return texts


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    out = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\n"]))
    for _ in range(draw(st.integers(0, 4))):
        for _ in range(draw(st.integers(0, 4))):
            name = draw(st.sampled_from([b"data", b"data", b"event", b"id", b"", b"dbta", b"data2"]))
            out += name + draw(st.sampled_from([b":", b": ", b":  "])) + draw(TEXTS).encode() + draw(LINE_ENDS)
        out += draw(LINE_ENDS)
    return out + draw(st.sampled_from([b"", b"data: last", b"data: last\n"]))


def split(stream: bytes, cuts: list[int]) -> list[Event]:
    splitter, events = EventSplitter(), []
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for begin, end in pairwise(places):
        events += splitter.feed(stream[begin:end])
    return [*events, *splitter.close()]


@given(streams(), st.lists(st.integers(0, 500), max_size=30))
def test_a_stream_is_read_by_the_specification_wherever_it_is_cut(stream, cuts):
    events = split(stream, cuts)
    assert [event.data for event in events if event.data is not None] == read_plainly(stream)
    assert events == split(stream, list(range(len(stream))))


@given(streams())
def test_what_is_written_is_read_alike(stream):
    events = split(stream, [])
    written = b"".join(event.encoded() for event in events)
    assert read_plainly(written) == read_plainly(stream)
    assert b"\r" not in written
    assert b"dbta" not in written


def test_a_line_that_is_no_field_is_noticed():
    (event,) = split(b'dbta: {"a": 1}\n\n', [])
    assert event.unknown
    assert event.encoded() == b""


def test_a_long_line_in_small_chunks_takes_linear_time():
    splitter = EventSplitter()
    searched = []
    for _ in range(2000):
        list(splitter.feed(b"x" * 1000))
        searched.append(splitter._searched)
    assert searched[-1] == len(splitter) == 2_000_000  # each byte is looked at once
