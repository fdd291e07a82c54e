"""What is packed is what a browser finds."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from anchorscope.report.page.pack import MISSING, Pack, SharedTexts
from anchorscope.report.page.render import in_script, without_folders
from anchorscope.report.page.sample_data import Columns, _fill_sampled
from reading_pages import Opened


def opened(pack: Pack) -> Opened:
    return Opened({"columns": pack.directory}, zlib.decompress(base64.b64decode(pack.text())))


def test_columns_come_back_each_at_a_place_where_its_type_may_begin():
    pack, rng = Pack(), np.random.default_rng(0)
    columns = [
        np.array([1, 2, 255], np.uint8),
        rng.normal(size=(3, 5)).astype(np.float32),
        np.array([], np.int16),
        rng.integers(0, 2**32, 7).astype(np.uint32),
        np.array([-5, 7], np.int32),
    ]
    numbers = [pack.add(each) for each in columns]
    page = opened(pack)
    for number, values in zip(numbers, columns, strict=True):
        assert np.array_equal(page.column(number), values.ravel())
        assert page.about["columns"][number][0] % 8 == 0
    with pytest.raises(ValueError, match="float64"):
        pack.add(np.zeros(3))


def test_scaled_numbers_are_near_and_missing_ones_are_missing():
    pack = Pack()
    values = np.array([0.12344, -3.2, np.nan, np.inf, 1e9])
    number = pack.scaled(values, 1000)
    kept = opened(pack).column(number)
    assert list(kept[:2]) == [123, -3200]
    assert kept[2] == kept[3] == MISSING
    assert kept[4] == 32767


def test_bits_are_read_as_javascript_reads_them():
    values = np.random.default_rng(1).random(37) < 0.5
    pack = Pack()
    number = pack.bits(values)
    kept = opened(pack).column(number)
    assert [bool((kept[i >> 3] >> (i & 7)) & 1) for i in range(37)] == list(values)


def test_texts_are_cut_where_javascript_counts():
    texts = ["plain", "", "naïve 🦉 owl", "日本", "a\x1fb", "lone \ud800 half"]
    pack = Pack()
    number = pack.texts(texts)
    assert opened(pack).texts(number)[:5] == texts[:5]
    assert opened(pack).texts(number)[5] == "lone ? half"


def test_a_sampled_answer_without_its_text_keeps_its_numbers():
    columns = Columns()
    _fill_sampled(columns, [("secret", True, 2, -1.5), ("words", False, 1, -3.0)], with_text=False)
    _fill_sampled(columns, [("Danube", True, 1, -0.5)], with_text=True)
    assert columns.text["sampled"] == ["", "", "Danube"]
    assert columns.number["sampled_times"] == [2, 1, 1]
    assert columns.number["sampled_end"] == [2, 3]


def test_what_stands_in_a_script_cannot_end_it():
    written = in_script({"a": "</script><!-- & \u2028"})
    assert "<" not in written
    assert "\u2028" not in written
    words = SharedTexts()
    assert [words(each) for each in "xyx"] == [0, 1, 0]
    assert words.all == ["x", "y"]


def test_a_page_says_nothing_of_its_writers_folders():
    study = {"models": [{"id": "/home/me/models/tiny", "name": "org/tiny"}], "path": "C", "seed": 0}
    assert without_folders(study) == {"models": [{"id": "…/tiny", "name": "org/tiny"}], "path": "C", "seed": 0}
