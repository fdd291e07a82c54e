"""Safetensors files that somebody made up, or that changed on their disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load, save

from anchorscope.errors import StoreError
from anchorscope.store.checksums import sha256_of
from anchorscope.store.tensors import read_headers, read_pieces, write_tensors

OURS = ("F32", "F16", "F64")  # numpy has no BF16
NUMBERS = st.integers(-4, 24) | st.sampled_from([2**31, 2**63, 2**64, 10**30, -(2**63)])
DAMAGE = st.sampled_from([None, True, -1, 0.5, 2.0, 1e400, "4", [], {}, [[1]], {"a": 1}])
ENTRY = st.fixed_dictionaries(
    {"dtype": st.sampled_from([*OURS, "I64", "F8", "", 3]) | DAMAGE,
     "shape": st.lists(NUMBERS, max_size=4) | DAMAGE,
     "data_offsets": st.lists(NUMBERS, min_size=1, max_size=3) | DAMAGE},
    optional={"more": DAMAGE},
)  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file as safetensors writes it, with some fields of its header changed; or a header that is made up."""
    if draw(st.booleans()):
        header: Any = draw(st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), ENTRY | DAMAGE, max_size=3))
        return content_of(header, bytes(draw(st.integers(0, 40))))
    arrays = {name: np.ones(draw(st.lists(st.integers(0, 3), max_size=3)), np.float32) for name in draw(NAMES)}
    content = save(arrays)
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    for name in header:
        for field in ("shape", "data_offsets"):
            if header[name][field] and draw(st.integers(0, 3)) == 0:
                header[name][field][draw(st.integers(0, len(header[name][field]) - 1))] = draw(NUMBERS | DAMAGE)
    return content_of(header, data + bytes(draw(st.sampled_from([0, 0, 0, 4]))))


NAMES = st.sets(st.sampled_from(["a", "b", "c"]), max_size=3)


def content_of(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: Any, offsets: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@example(content_of({"a": entry([2], [0, 8]), "b": entry([2], [4, 12])}, bytes(12)))  # overlap
@example(content_of({"a": entry([1], [8, 12])}, bytes(12)))  # hole
@example(content_of({"a": entry([1], [-4, 0])}, b""))  # the header's own bytes
@example(content_of({"a": entry([-1, -2], [0, 8])}, bytes(8)))
@example(content_of({"a": entry([2.0], [0, 8])}, bytes(8)))
@example(content_of({"a": entry([2**63, 2**63, 0], [0, 0])}, b""))
@example(content_of({"a": entry([1], [0, 8], "I64")}, bytes(8)))
@example(content_of(b"[" * 100_000, b""))
@example(content_of(b'{"a": NaN}', b""))
@example((2**63).to_bytes(8, "little") + b"{}")
@given(files())
def test_what_safetensors_refuses_is_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    path = tmp_path_factory.getbasetemp() / "made-up.safetensors"
    path.write_bytes(content)
    try:
        (header,) = read_headers([path])
        ours = {name: read_pieces([path], [piece]) for name, piece in header.items() if piece.shape}
    except StoreError:
        return  # anything else is a failure
    theirs = load(content)  # which raises where we should have refused
    assert header.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_a_good_file_is_accepted(tmp_path: Path):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.float16)}
    (tmp_path / "f").write_bytes(save(arrays, {"about": "it"}))
    (header,) = read_headers([tmp_path / "f"])
    for name, array in arrays.items():
        np.testing.assert_array_equal(read_pieces([tmp_path / "f"], [header[name]]), array)
    with pytest.raises(SafetensorError):
        load(content_of({"__metadata__": {"a": 1}}, b""))
    (tmp_path / "g").write_bytes(content_of({"__metadata__": {"a": 1}}, b""))
    with pytest.raises(StoreError):
        read_headers([tmp_path / "g"])


def test_every_flipped_bit_is_noticed_by_the_recorded_digest(tmp_path: Path):
    arrays = {"a": np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32)}
    path, random = tmp_path / "cell" / "states" / "f", Random(1)
    digests = write_tensors(path, save(arrays), tmp_path / "cell")
    assert digests == {"states/f": sha256_of(path)}
    read_headers([path], [digests["states/f"]])
    whole = path.read_bytes()
    for turn in range(100):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        os.utime(path, ns=(turn, turn))  # a file that was written anew has another time, even within a clock's tick
        with pytest.raises(StoreError, match=r"f: cannot be read \(its checksum differs"):
            read_headers([path], [digests["states/f"]])
    path.unlink()
    with pytest.raises(StoreError, match="No such file"):
        read_headers([path], [digests["states/f"]])
