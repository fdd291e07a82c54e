"""Checksums, by which a file that changed on its disk is noticed instead of read.

- A Parquet file has two SHA-256 in its footer, one of the footer itself and one of the pages before it. Each page also
  has a CRC, which any reader of Parquet can check. The CRCs leave out the headers of pages, where one flipped bit in
  some thousands changes values.
- A safetensors file has a SHA-256 in the table, or in the JSON record, that it belongs to.
- A JSON record has a SHA-256 of its own content.

A process hashes a file when it first reads it. Files of version 0.2.0 and before have no checksums, and are read as
they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter

from anchorscope.store.remote import Remote

FOOTER_SHA256, PAGES_SHA256 = b"footer_sha256", b"pages_sha256"  # in the metadata of a Parquet file
BESIDE_SHA256 = b"beside_sha256"  # likewise: digests of the files that belong to a shard, by their paths in the cell
RECORD_SHA256 = "sha256"  # in a JSON record
CHANGED = "its checksum differs: it is not what was written"
FOOTER_BYTES = 1 << 16  # read from the end of an object; where its footer is longer, all of it is read
_BESIDE = TypeAdapter(dict[Annotated[str, Field(pattern=r"^\w[\w.-]*/part-\d+\.safetensors$")], str])
_BLOCK = 1 << 22  # bytes hashed at a time
_FOOTER, _PAGES = b"0" * 64, b"1" * 64  # in place of the two digests until they are known


# --- Parquet


def parquet_content(table: pa.Table, beside: Mapping[str, str]) -> bytes:
    """A table as the bytes of a Parquet file with checksums. `beside`: digests of the files that belong to it."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(table)
        if beside:
            writer.add_key_value_metadata({BESIDE_SHA256: json.dumps(dict(beside), sort_keys=True)})
        writer.add_key_value_metadata({FOOTER_SHA256: _FOOTER, PAGES_SHA256: _PAGES})
    content = sink.getvalue()
    start = len(content) - 8 - _footer_length(content[-8:])
    footer = content[start:].replace(_PAGES, _digest(content[:start]), 1)
    return content[:start] + footer.replace(_FOOTER, _digest(footer[:-8]), 1)


def read_footer(path: Path) -> Any:
    """The footer of a Parquet file (pyarrow's FileMetaData). ValueError or OSError where it is damaged."""
    if not isinstance(path, Remote):
        with path.open("rb") as stream:
            return footer_of(stream)
    try:
        return footer_of(io.BytesIO(path.tail(FOOTER_BYTES)))
    except ValueError:  # perhaps it is longer
        return footer_of(path.open("rb"))


def footer_of(stream: BinaryIO) -> Any:
    """The footer of a Parquet file that is open. ValueError or OSError where it is damaged."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 8))
    end = stream.read(8)
    length = _footer_length(end)
    if length > size - 8:
        raise ValueError("it was cut short")
    stream.seek(size - 8 - length)
    footer = stream.read(length)
    about = pq.read_metadata(io.BytesIO(footer + end))
    if FOOTER_SHA256 in footer or PAGES_SHA256 in footer:  # among its bytes: damage may hide the metadata
        metadata = about.metadata or {}
        digest = metadata.get(FOOTER_SHA256, b"")
        if PAGES_SHA256 not in metadata or _digest(footer.replace(digest, _FOOTER, 1)) != digest:
            raise ValueError(CHANGED)
    return about


def check_pages(source: Path | BinaryIO, about: Any) -> None:
    """Check the pages of a Parquet file against its footer. ValueError where they changed."""
    digest = (about.metadata or {}).get(PAGES_SHA256)
    if digest is None:
        return
    if isinstance(source, Path):
        pages = sha256_of(source, source.stat().st_size - 8 - about.serialized_size)
    else:
        stop = source.seek(0, os.SEEK_END) - 8 - about.serialized_size
        source.seek(0)
        pages = hashlib.sha256(source.read(stop)).hexdigest()
        source.seek(0)
    if pages.encode() != digest:
        raise ValueError(CHANGED)


def beside_of(about: Any) -> dict[str, str]:
    """The SHA-256 of each file that belongs to a shard, by the file's path in the cell, from the shard's footer.

    ValueError where that cannot be read, or a path leads out of the cell.
    """
    return _BESIDE.validate_json((about.metadata or {}).get(BESIDE_SHA256, b"{}"))


def has_checksums(about: Any) -> bool:
    """Whether a Parquet file was written with checksums, by its footer."""
    return FOOTER_SHA256 in (about.metadata or {})


def _footer_length(end: bytes) -> int:
    if end[4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does")
    return int.from_bytes(end[:4], "little")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


# --- whole files


def sha256_of(path: Path, stop: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes up to `stop`.

    A process reads a file for this once, as long as the file keeps its size and its time.
    """
    if isinstance(path, Remote):
        return hashlib.sha256(path.read_bytes()[:stop]).hexdigest()
    about = path.stat()
    return _sha256_of(path, about.st_size if stop is None else stop, about.st_size, about.st_mtime_ns)


def forget_digests() -> None:
    """Read every file anew from now on."""
    _sha256_of.cache_clear()


@lru_cache(maxsize=1 << 16)
def _sha256_of(path: Path, left: int, size: int, changed: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(min(left, _BLOCK)):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


# --- JSON


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON record with the checksum of its content."""
    content = json.loads(json.dumps(record))  # as it will be read back
    return {**content, RECORD_SHA256: _record_digest(content)}


def without_checksum(record: Any) -> Any:
    """The record that `with_checksum` got, or one without a checksum as it is. ValueError where it changed since."""
    if not isinstance(record, dict) or RECORD_SHA256 not in record:
        return record
    content = {name: value for name, value in record.items() if name != RECORD_SHA256}
    if _record_digest(content) != record[RECORD_SHA256]:
        raise ValueError(CHANGED)
    return content


def _record_digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
