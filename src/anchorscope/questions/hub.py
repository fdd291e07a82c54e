"""Rows of a dataset on the Hugging Face hub, streamed through the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from anchorscope.errors import HubError, printable
from anchorscope.hub import hub_errors
from anchorscope.questions.definition import HubSource


@dataclass(frozen=True)
class HubRows:
    """The rows of one split, at one commit."""

    source: HubSource
    columns: tuple[str, ...] | None = None
    """Columns that are needed; the others are not decoded."""

    @property
    def unit(self) -> Literal["line", "row"]:
        """What the numbers of its rows count."""
        return "row"

    @property
    def label(self) -> str:
        """What errors call it."""
        return f"{self.source}/{self.source.split}"

    @cached_property
    def commit(self) -> str:
        """The commit the revision stands for, asked once, so that both passes read the same rows."""
        from huggingface_hub import HfApi

        with hub_errors(self.source.id, "dataset"):
            info = HfApi().dataset_info(self.source.id, revision=self.source.revision)
            if info.gated:
                HfApi().auth_check(self.source.id, repo_type="dataset")
        if info.sha is None:
            raise HubError(f"the hub did not say which commit of the dataset {self.source.id} it holds")
        return info.sha

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
                "reading question sets from the hub needs the `datasets` library",
                "Run: pip install 'anchorscope[hub]'  (or give a local file as `path`)",
            ) from None
        with hub_errors(self.source.id, "dataset"):
            try:
                rows = datasets.load_dataset(
                    self.source.id,
                    self.source.config,
                    split=self.source.split,
                    revision=self.commit,
                    streaming=True,
                )
            except (ValueError, datasets.exceptions.DatasetsError) as error:
                # an unknown configuration or split; the library's text lists the right ones
                raise HubError(f"the dataset {self.label}: {printable(' '.join(str(error).split()), 300)}") from None
            if self.columns and rows.column_names:
                rows = rows.select_columns([name for name in rows.column_names if name in self.columns])
            yield from enumerate(rows, start=1)
