"""Where nothing can be drawn over, lines tell how far a stage is: by the clock, not by what is done."""

from __future__ import annotations

import re
import time

import pytest

from anchorscope import progress
from anchorscope.progress import counted, how_far, in_parts, lines


def test_a_stage_has_a_line_then_one_every_so_often_and_one_at_its_end(monkeypatch):
    monkeypatch.setattr(progress, "SOON", 0.05)
    said: list[str] = []
    with lines("answering", 800, said.append, every=0.2) as advance:
        time.sleep(0.1)
        advance(100)
        time.sleep(0.45)
    assert said[0] == "answering: 800"
    assert len(said) >= 3
    assert re.fullmatch(r"answering: 100 of 800, [\d,.]+/s, 0:00:\d\d left", said[1]), said
    assert re.fullmatch(r"answering: done in \d+ s", said[-1])


def test_a_stage_that_is_over_at_once_says_nothing():
    said: list[str] = []
    with lines("quick", None, said.append):
        pass
    assert said == []


def test_a_stage_that_fails_stops_its_clock_and_is_not_called_done(monkeypatch):
    monkeypatch.setattr(progress, "SOON", 0.05)
    said: list[str] = []

    def stage() -> None:
        with lines("slow", None, said.append, every=0.1):
            time.sleep(0.3)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        stage()
    count = len(said)
    time.sleep(0.25)
    assert len(said) == count
    assert not any("done" in line for line in said)


def test_a_shard_counts_all_its_items_once_and_none_of_them_where_it_fails():
    said: list[int] = []
    with counted(said.append, 5) as advance:
        advance(2)
        advance(0)
        advance(9)  # a batch that was tried again
    with counted(said.append, 3):
        pass
    assert said == [2, 3, 3]
    said.clear()

    def broken() -> None:
        with counted(said.append, 5) as advance:
            advance(1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        broken()
    assert said == [1]


def test_an_item_counts_when_its_last_part_is_done():
    said: list[int] = []
    advance = in_parts(said.append, 4)
    for parts in (3, 1, 7, 1, 4):
        advance(parts)
    assert said == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [
        (300, 800, 25, "300 of 800, 12/s, 0:00:42 left"),
        (3, 10, 30, "3 of 10, 0.1/s, 0:01:10 left"),
        (1, 10, 30, "1 of 10, 2.0/min, 0:04:30 left"),
        (1, 3, 7200, "1 of 3, 0.5/h, 4:00:00 left"),
        (0, 800, 30, "waiting for the first of 800, 30 s so far"),
        (0, None, 30, "30 s so far"),
        (500, None, 5, "500, 100/s"),
        (800, 800, 40, "800 of 800, 20/s"),
    ],
)
def test_how_far_it_is(done, total, seconds, words):
    assert how_far(done, total, seconds) == words
