"""A real S3 server on this machine, and paths, leases, tables and tensors on it as on disk."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from anchorscope.errors import StoreError, printable
from anchorscope.store import Plan, Table, checksums, lease
from anchorscope.store.files import held, path_of, read_ranges, write_bytes, write_text
from anchorscope.store.lease import Lease
from anchorscope.store.tensors import UnreadableError, read_headers, read_pieces
from conftest import in_process


def test_a_place_is_a_path_or_a_url(tmp_path: Path):
    assert path_of("runs/a") == Path("runs/a")
    assert path_of(tmp_path) is tmp_path
    assert path_of(f"file://{tmp_path}") == tmp_path
    place = path_of("s3://bucket/runs")
    assert (str(place), str(place / "a" / "b.json")) == ("s3://bucket/runs", "s3://bucket/runs/a/b.json")
    assert path_of(place) is place
    below = place / "a" / "b.json"
    assert (below.name, below.stem, str(below.parent)) == ("b.json", "b", "s3://bucket/runs/a")
    assert str(below.with_name("c")) == "s3://bucket/runs/a/c"
    assert below.relative_to(place).as_posix() == "a/b.json"
    assert str(pickle.loads(pickle.dumps(below))) == str(below)


@pytest.mark.parametrize("url", ["s3://", "nothing://known", "bucket://"])
def test_a_url_that_leads_nowhere_is_said_so(url: str):
    with pytest.raises(StoreError, match=r"has no bucket name|not known") as failure:
        path_of(url)
    assert "s3://bucket/runs" in str(failure.value.hint)


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)  # as if it were not installed
    with pytest.raises(StoreError, match="fsspec") as failure:
        path_of("s3://bucket/runs")
    assert "pip install 'anchorscope[s3]'" in str(failure.value.hint)


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_a_store_is_asked_as_a_disk_is(where: str, tmp_path: Path, s3: Path):
    root = tmp_path / "x" if where == "disk" else s3
    assert not root.exists()
    names = ["m/one/manifest.json", "m/two/manifest.json", "m/two/other.json", "study.yaml"]
    for name in names:
        write_text(root / name, name)
    assert root.exists()
    assert root.is_dir()
    assert not root.is_file()
    assert not (root / "study.yaml").is_dir()
    assert not (root / "study").exists()
    assert sorted(path.name for path in root.iterdir()) == ["m", "study.yaml"]
    assert sorted(str(path.relative_to(root)) for path in root.glob("*/*/manifest.json")) == names[:2]
    assert [path.name for path in root.glob("*/two/o*.json")] == ["other.json"]
    assert list(root.glob("*/three/*.json")) == []
    assert (root / "study.yaml").stat().st_size == 10
    assert (root / "study.yaml").read_text(encoding="utf-8") == "study.yaml"
    assert list(read_ranges([root / name for name in names], [0, 1, 2, 0], [1, 3, 99, 0])) == [
        b"m", b"/t", b"two/other.json", b"",
    ]  # fmt: skip
    (root / "study.yaml").unlink()
    (root / "study.yaml").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (root / "study.yaml").read_bytes()


def test_a_write_that_fails_is_told_in_words(s3_server: None):
    with pytest.raises(StoreError, match=r"cannot write s3://no-such-bucket/a: .*bucket does not exist") as failure:
        write_text(path_of("s3://no-such-bucket/a"), "x")
    assert "Finished work is kept" in str(failure.value.hint)
    with (
        pytest.raises(StoreError, match=r"cannot write to s3://no-such-bucket/a"),
        held(path_of("s3://no-such-bucket/a")),
    ):
        pass


def test_a_killed_writer_leaves_no_half_object(s3: Path):
    import fsspec

    script = f"""
from anchorscope.store.files import path_of, write_bytes
write_bytes(path_of("{s3}/small"), b"1" * 1000)
write_bytes(path_of("{s3}/large"), b"1" * 220_000_000)
"""
    writer = subprocess.Popen([sys.executable, "-c", script])
    system, before = fsspec.filesystem("s3", use_listings_cache=False), (s3 / "large")
    while not system.list_multipart_uploads("runs"):  # its parts are on the way
        assert writer.poll() is None
        time.sleep(0.005)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert (s3 / "small").stat().st_size == 1000
    assert not before.exists()
    system.clear_multipart_uploads("runs")
    write_bytes(before, bytes(106_000_000))  # again, and whole: in parts
    assert before.stat().st_size == 106_000_000
    before.unlink()


# --- one writer


def test_one_writes_and_others_are_told_who(s3: Path):
    with held(s3):
        with pytest.raises(StoreError, match=f"being written by process {os.getpid()} on ") as failure, held(s3):
            pass
        assert "void in" in str(failure.value.hint)
        write_text(s3 / "a", "x")
    assert [path.name for path in s3.iterdir()] == ["a"]
    with held(s3):
        pass


def test_a_lease_is_renewed_while_it_is_held(s3: Path, monkeypatch):
    monkeypatch.setattr(lease, "STALE", 3.0)
    monkeypatch.setattr(lease, "RENEW", 0.2)
    with held(s3):
        time.sleep(4.5)
        with pytest.raises(StoreError, match="being written"), held(s3):
            pass
        write_text(s3 / "a", "x")


def test_the_lease_of_a_killed_writer_is_taken_over(s3: Path, monkeypatch):
    script = f"""
import os
from anchorscope.store.files import held, path_of
with held(path_of("{s3}")):
    print(os.getpid(), flush=True)
    os._exit(1)
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    with pytest.raises(StoreError, match=f"being written by process {killed.stdout.strip()} on "), held(s3):
        pass
    monkeypatch.setattr(lease, "STALE", -1.0)  # as if a minute had gone by
    monkeypatch.setattr(lease.Lease, "check", lambda self: None)
    with held(s3):
        assert [path.name for path in s3.iterdir()] == [".lease-000002"]
    assert not s3.exists()


def test_of_many_who_come_at_once_one_gets_the_lease(s3: Path, monkeypatch):
    def take(number: int) -> Lease | None:
        mine = Lease(s3, f"process {number}")
        try:
            mine.take()
        except StoreError:
            return None
        return mine

    with ThreadPoolExecutor(8) as pool:
        (first,) = [each for each in pool.map(take, range(8)) if each]
        monkeypatch.setattr(lease, "_taken_here", {})
        write_text(s3 / ".lease-000007", "someone, long ago")
        ages = {".lease-000007": 100.0}
        monkeypatch.setattr(Lease, "_age", lambda self, other: ages.get(other.name, 0.0))
        (second,) = [each for each in pool.map(take, range(8)) if each]
    assert [path.name for path in s3.iterdir()] == [".lease-000008"]
    second.release()
    first.release()


def write_for_a_while(path: Path) -> None:
    for _ in range(200):
        time.sleep(0.05)
        write_text(path, "x")


def test_who_was_taken_over_writes_no_more(s3: Path, monkeypatch):
    monkeypatch.setattr(lease, "RENEW", 0.05)
    with held(s3):
        write_text(s3 / "a", "x")
        write_text(s3 / ".lease-000002", "process 7 on another machine\n")
        with pytest.raises(StoreError, match="was taken over by process 7 on another machine"):
            write_for_a_while(s3 / "a")
    assert (s3 / ".lease-000002").exists()  # it is not ours to let go of


def test_who_cannot_renew_writes_no_more(s3: Path, monkeypatch):
    with held(s3):
        monkeypatch.setattr(lease, "STALE", -1.0)
        with pytest.raises(StoreError, match="could not be renewed"):
            write_text(s3 / "a", "x")


# --- tables and tensors


@dataclass(frozen=True)
class Row:
    name: str
    """a name"""
    numbers: list[int]
    """numbers"""


def test_a_table_has_the_same_bytes_and_the_same_rows(tmp_path: Path, s3: Path, monkeypatch):
    rows = [Row(f"row {i}", list(range(i))) for i in range(20)]
    tables = [Table(root / "rows", Row, Plan(len(rows), 3)) for root in (tmp_path, s3)]
    for each in tables:
        assert each.missing() == list(range(7))
        for shard in range(7):
            each.write(shard, [rows[i] for i in each.plan.rows_of(shard)])
        assert each.missing() == []
        assert list(each) == rows
        assert each.read(6) == rows[18:]
        assert [list(batch.column_names) for batch in each.batches(["numbers"])] == [["numbers"]] * 7
    local, there = tables
    assert all(there.path(shard).read_bytes() == local.path(shard).read_bytes() for shard in range(7))
    monkeypatch.setattr(checksums, "FOOTER_BYTES", 20)  # less than a footer is
    assert there.missing() == []
    write_bytes(there.path(3), local.path(3).read_bytes()[:-30])
    write_bytes(there.path(4), b"")
    there.remove(5)
    assert there.missing() == [3, 4, 5]
    assert [there.rows_in(shard) for shard in (2, 3, 4, 5)] == [3, -1, -1, None]
    with pytest.raises(StoreError, match="3 of 7 shards are missing"):
        list(there)
    with pytest.raises(StoreError, match=r"part-000003.parquet is damaged"):
        there.read(3)


DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_is_read_as_safetensors_reads_it(dtype: torch.dtype, tmp_path: Path, s3: Path):
    draw = torch.Generator().manual_seed(1)
    names, local = ["clean/mlp/answer_last", "é", "support/clean"], []
    for shard, rows in enumerate([3, 5, 1]):
        tensors = {name: torch.randn(4, rows, 7, generator=draw).mul(1e3).to(dtype) for name in names[:2]}
        tensors[names[2]] = torch.randn(rows, generator=draw)
        tensors[names[0]][0, 0, :3] = torch.tensor([float("inf"), float("nan"), 1e-40])
        local.append(tmp_path / f"part-{shard}")
        content = save(tensors, {"about": "it"})
        write_bytes(local[-1], content)
        write_bytes(s3 / local[-1].name, content)
    for paths in (local, [s3 / path.name for path in local]):
        headers = read_headers(paths)
        for name in names:
            for layer in range(-1, 4) if "support" not in name else [None]:
                slow = []
                for path in local:
                    with safe_open(path, framework="pt") as file:
                        slow.append(file.get_slice(name)[layer if layer is not None else slice(None)].float().numpy())
                pieces = [held[name] if layer is None else held[name].layer(layer) for held in headers]
                fast = read_pieces(paths, pieces)
                assert fast.dtype == np.float32
                np.testing.assert_array_equal(fast, np.concatenate(slow))


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_a_file_that_is_no_safetensors_is_named(where: str, tmp_path: Path, s3: Path):
    root, good = tmp_path if where == "disk" else s3, save({"a": torch.zeros(4, 2)})
    harm = {
        "empty": b"", "short": good[:6], "no header": good[:20], "words": b"no such thing as tensors",
        "json": (4).to_bytes(8, "little") + b"[12]", "gone": None, "shape": good.replace(b"[4,2]", b"[4,3]"),
        "dtype": good.replace(b"F32", b"I32"),
    }  # fmt: skip
    write_bytes(root / "good", good)
    for name, content in harm.items():
        if content is not None:
            write_bytes(root / name, content)
        with pytest.raises(UnreadableError, match=f"{name}: cannot be read"):
            read_headers([root / "good", root / name])
    write_bytes(root / "cut", good[:-5])
    with pytest.raises(UnreadableError, match="cut: cannot be read"):
        read_pieces([root / "cut"], [held["a"] for held in read_headers([root / "cut"])])


@pytest.mark.parametrize("place", ["s3://KEY:s3cret@bucket/runs", "http://user:s3cret@host/x", "s3://s3cret@bucket"])
def test_a_place_with_a_key_in_it_is_refused_and_the_key_not_repeated(place: str):
    with pytest.raises(StoreError, match="holds a user name, password or key") as refused:
        path_of(place)
    assert "s3cret" not in str(refused.value)
    assert "AWS_SECRET_ACCESS_KEY" in refused.value.hint
    ended = in_process("status", place)
    assert ended.returncode == 3
    assert "s3cret@" not in ended.stdout + ended.stderr


def test_what_is_printed_holds_no_key():
    for text in ("at s3://KEY:s3cret@bucket/x", "s3:/KEY:s3cret@bucket", "a http://s3cret@h and ftp://u:s3cret@h/y"):
        assert "s3cret" not in printable(text)
    for text in ("mail a@b.org", "https://host/@name/x", "s3://bucket/runs", "a:/b/c@d"):
        assert printable(text) == text
