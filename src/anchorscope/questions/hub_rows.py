"""Rows of a dataset on the Hugging Face hub, streamed through the `datasets` library."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

from anchorscope.errors import AnchorscopeError, HubError, hub_errors, is_network, out_of_reach, reason_of
from anchorscope.questions.definition import HubSource
from anchorscope.questions.file_rows import FileRows
from anchorscope.reach import hub_in_reach


@dataclass(frozen=True)
class HubRows:
    """The rows of one split, at one commit."""

    source: HubSource
    """Which split of which dataset."""
    columns: tuple[str, ...] | None = None
    """Columns that are needed; the others are not decoded."""
    pinned: str | None = None
    """The commit to read, when it is known from an earlier reading."""

    @property
    def unit(self) -> Literal["line", "row"]:
        """What the numbers of its rows count."""
        return "row"

    @property
    def label(self) -> str:
        return f"{self.source}/{self.source.split}"

    @cached_property
    def commit(self) -> str:
        """The commit the revision stands for, asked once, so that both passes read the same rows."""
        from huggingface_hub import HfApi

        if self.pinned is not None:
            return self.pinned
        if Path(self.source.id).exists():
            raise HubError(
                f"a local folder has the same name as the dataset {self.source.id}",
                "Run from another folder, or give `file`.",
            )
        with hub_errors(self.source.id, "dataset"):
            if not hub_in_reach():
                raise out_of_reach(self.source.id, "dataset")
            info = HfApi().dataset_info(self.source.id, revision=self.source.revision, timeout=20)
            if info.gated:
                HfApi().auth_check(self.source.id, repo_type="dataset")
        if info.sha is None:
            raise HubError(f"the hub did not say which commit of the dataset {self.source.id} it holds")
        return info.sha

    def at(self, identity: dict[str, Any]) -> HubRows:
        """The same rows at the commit of an earlier reading, if that was of the same split."""
        same = identity.get("kind") == "hub" and (identity["id"], identity["config"], identity["split"]) == (
            self.source.id, self.source.config, self.source.split
        )  # fmt: skip
        return replace(self, pinned=identity["commit"]) if same else self

    def identity(self) -> dict[str, Any]:
        """What the rows are: id, configuration, split and commit."""
        return {
            "kind": "hub",
            "id": self.source.id,
            "config": self.source.config,
            "split": self.source.split,
            "commit": self.commit,
        }

    def describe(self) -> str:
        """For people: that it is there, and at which commit."""
        return f"commit {self.commit[:12]}"

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (row number from 1, row)."""
        try:
            import datasets
        except ImportError:
            raise HubError(
                "reading datasets from the hub needs the `datasets` library",
                "Run: pip install 'anchorscope[hub]'  (or give a local file as `path`)",
            ) from None
        from huggingface_hub import errors

        with hub_errors(self.source.id, "dataset"):
            try:
                builder = datasets.load_dataset_builder(self.source.id, self.source.config, revision=self.commit)
                if builder.name == "csv":
                    yield from self._text_files(builder.config.data_files or {})
                    return
                rows = builder.as_streaming_dataset(split=self.source.split)
                if self.columns and rows.column_names:
                    rows = rows.select_columns([name for name in rows.column_names if name in self.columns])
                yield from enumerate(rows, start=1)
            except (AnchorscopeError, errors.HfHubHTTPError, ConnectionError, errors.OfflineModeIsEnabled):
                raise
            except Exception as error:
                if is_network(error):
                    raise
                # an unknown configuration or split, or a broken file; the library's text says which
                reason = reason_of(error)
                raise HubError(f"the dataset {self.label}: {reason}") from None

    def _text_files(self, data_files: Mapping[str, list[str]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """CSV and TSV files, as text: the library would guess types, and read 007 as 7 and NA as nothing."""
        if self.source.split not in data_files:
            known = ", ".join(map(str, data_files))
            raise HubError(f"the dataset {self.source} has no split '{self.source.split}'; it has: {known}")
        rows = (row for url in data_files[self.source.split] for _, row in _HubFile(Path(url), url=url))
        yield from enumerate(rows, start=1)


@dataclass(frozen=True)
class _HubFile(FileRows):
    """One file of a dataset on the hub."""

    url: str = ""

    def _open(self) -> BinaryIO:
        from huggingface_hub import HfFileSystem

        return io.BufferedReader(HfFileSystem().open(self.url, "rb"), 1 << 20)  # whose readline takes a limit
