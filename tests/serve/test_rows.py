"""Rows on their way from the worker to the desk: which are kept, which are added up, and when nothing is said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from anchorscope.errors import DetectorError
from anchorscope.serve.adapter import RequestName, check_version, name_of
from anchorscope.serve.wire import RowBook, encode, private_socket
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
QUESTION = "Which river is near Hill?"
ANSWER = " Danube"


def rows_of(*tokens: int) -> np.ndarray:
    return np.array([[1.0 + token, token] for token in tokens], np.float32)


def book_for(*positions: Any, stages: int = 1) -> RowBook:
    """A book that took rows of a request: step, first position, tokens."""
    book = RowBook("plan", stages)
    book.expect("r")
    for step, begin, tokens in positions:
        book.take(encode("plan", 0, stages, step, [("cmpl-r-0-0123abcd", begin, len(tokens))], rows_of(*tokens)))
    return book


def test_only_rows_of_this_plan_and_of_expected_requests_are_kept():
    book = book_for()
    book.take(encode("other", 0, 1, 1, [("cmpl-r-0-0123abcd", 3, 1)], rows_of(7)))
    book.take(b"not a message")
    book.take(msgspec.msgpack.encode([1, 2]))
    assert (book.foreign, book.expected["r"].rows) == (3, {})
    book.take(encode("plan", 0, 1, 1, [("cmpl-other-0-0123abcd", 3, 1)], rows_of(7)))
    assert book.unexpected == 1
    book.take(encode("plan", 0, 1, 1, [("cmpl-r-0-0123abcd", 3, 1)], rows_of(7)))
    assert book.complete("r", (0, 0), 3, [7])
    assert not book.complete("r", (0, 0), 3, [8])
    assert not book.complete("r", (0, 0), 3, [7, 9])


def test_a_rejected_draft_is_not_taken_for_the_token_that_came_later():
    # step 1 reads 5 and drafts 6, 7; the 6 is rejected, and step 2 reads an 8 in its place. A 7 follows it by chance
    book = book_for((1, 3, [5, 6, 7]), (2, 4, [8]))
    assert book.complete("r", (0, 0), 3, [5, 8])
    assert not book.complete("r", (0, 0), 3, [5, 8, 7])  # the row of the 7 was read behind the 6
    book.take(encode("plan", 0, 1, 3, [("cmpl-r-0-0123abcd", 5, 1)], rows_of(7)))
    assert book.complete("r", (0, 0), 3, [5, 8, 7])


def test_accepted_drafts_count():
    assert book_for((1, 3, [5, 6, 7])).complete("r", (0, 0), 3, [5, 6, 7])


def test_what_is_read_again_after_a_preemption_changes_nothing():
    book = book_for((1, 3, [5]), (2, 4, [6]), (3, 5, [7]))
    again = np.array([[float("nan"), 6]], np.float32)
    book.take(encode("plan", 0, 1, 9, [("cmpl-r-0-0123abcd", 4, 1)], again))
    assert book.complete("r", (0, 0), 3, [5, 6, 7])
    assert np.isfinite(asyncio.run(book.rows("r", (0, 0), 3, [5, 6, 7]))).all()


def test_a_long_answer_does_not_fill_the_memory():
    book = RowBook("plan", longest=10)
    book.expect("r")
    for position in range(1000):
        book.take(encode("plan", 0, 1, position, [("cmpl-r-0-0123abcd", position, 1)], rows_of(1)))
    assert len(book.expected["r"].rows[0, 0]) == 11
    assert asyncio.run(book.rows("r", (0, 0), 0, [1] * 12)) is None


def test_partial_rows_of_pipeline_stages_are_added_up():
    book = RowBook("plan", stages=2)
    book.expect("r")
    for stage in (0, 1):
        row = np.array([[1.0 + stage, 7.0]], np.float32)
        book.take(encode("plan", stage, 2, 1, [("cmpl-r-0-0123abcd", 3, 1)], row))
        assert book.complete("r", (0, 0), 3, [7]) == (stage == 1)
    assert asyncio.run(book.rows("r", (0, 0), 3, [7])).tolist() == [[3.0]]


def test_all_answers_of_a_request_share_one_deadline():
    book = book_for()

    async def both() -> float:
        start = asyncio.get_running_loop().time()
        for key in ((0, 0), (0, 1), (0, 2)):
            assert await book.rows("r", key, 3, [7], wait=0.1) is None
        return asyncio.get_running_loop().time() - start

    assert asyncio.run(both()) < 0.25


def test_names_of_requests():
    assert name_of("cmpl-abc-2-0123abcd") == RequestName("abc", 2, 0)
    assert name_of("3_cmpl-abc-1-0123abcd") == RequestName("abc", 1, 3)
    assert name_of("chatcmpl-abc-0123abcd") == RequestName("abc", 0, 0)
    assert name_of("something else") is None


def test_other_versions_of_vllm_are_refused():
    check_version("0.32.0")
    for version in ("0.31.2", "0.33.0", "1.0"):
        with pytest.raises(DetectorError, match="has not been tested"):
            check_version(version)


@pytest.mark.parametrize("mode", [0o700, 0o2777])  # the second: /tmp of a pod that has an fsGroup
def test_the_socket_is_private_and_the_same_for_the_same_server(tmp_path, monkeypatch, mode):
    tmp_path.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address = private_socket("plan-8000")
    folder = Path(address.removeprefix("ipc://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_socket("plan-8000") == address
    folder.chmod(0o755)
    with pytest.raises(DetectorError, match="other users can open"):
        private_socket("plan-8000")
