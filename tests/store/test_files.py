"""A path that a user names is written as any program would: links are followed, and pipes stay pipes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from anchorscope.errors import StoreError
from anchorscope.store.files import write_output, write_text

posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes are POSIX")


@posix
@pytest.mark.parametrize("there", [True, False])
def test_output_goes_through_links(tmp_path: Path, there: bool) -> None:
    real, link, second = tmp_path / "real.html", tmp_path / "link.html", tmp_path / "second.html"
    if there:
        real.write_text("old")
    link.symlink_to(real.name)
    second.symlink_to(link)
    write_output(second, "new")
    assert real.read_text() == "new"
    assert link.is_symlink()
    assert second.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "real.html", "second.html"]


@posix
def test_output_goes_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write_output(pipe, "ä" * 100_000)
    reader.join(10)
    assert read == ["ä" * 100_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_output_goes_into_a_device(tmp_path: Path) -> None:
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # as /dev/full, whose writes fail
        device.open("rb").close()
    except OSError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(StoreError, match="No space left"):
        write_output(device, "text")
    assert stat.S_ISCHR(device.stat().st_mode)


@posix
def test_a_link_inside_a_run_is_replaced(tmp_path: Path) -> None:
    """Runs come from strangers: a link among their files leads to a file of the user's."""
    other, link = tmp_path / "other", tmp_path / "claims.json"
    other.write_text("mine")
    link.symlink_to(other)
    write_text(link, "{}")
    assert (other.read_text(), link.read_text(), link.is_symlink()) == ("mine", "{}", False)


def test_output_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="No space left"):
        write_output(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.jsonl"]
