"""The audit log: one line of JSON per verdict, written by a thread of its own.

A line that cannot be written is counted and costs no verdict. Only the owner of the file can read it. The file is
opened again after it was renamed, so that logrotate works without a signal.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

log = logging.getLogger("vllm.anchorscope")
MOST_WAITING = 10_000  # lines that wait to be written. Further ones are counted as failed


class AuditLog:
    """Appends records to a file."""

    def __init__(self, path: Path) -> None:
        """Open the file, so that a place that cannot be written stops the start of the server."""
        self.path = path
        self.failed = 0
        self._file: TextIO | None = self._open()
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write_all, daemon=True, name="anchorscope-audit")
        self._thread.start()

    def put(self, record: dict[str, Any]) -> None:
        """Write a record soon. It never raises and never waits."""
        try:
            self._lines.put_nowait(record)
        except queue.Full:
            self.failed += 1

    def flush(self) -> None:
        """Wait until all records are written."""
        self._lines.join()

    def close(self) -> None:
        """Write what waits, and end."""
        self._lines.put(None)
        self._thread.join(timeout=5)

    def _open(self) -> TextIO:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "w", encoding="ascii", buffering=1)

    def _write_all(self) -> None:
        while (record := self._lines.get()) is not None:
            try:
                self._write(record)
            except Exception:
                self.failed += 1
                if self.failed == 1:
                    log.exception("anchorscope: the audit log %s cannot be written", self.path)
            finally:
                self._lines.task_done()
        self._lines.task_done()
        self._close_file()

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record) + "\n"
        if self._file is None or self._moved(self._file):
            self._close_file()
            self._file = self._open()
        try:
            self._file.write(line)
        except OSError:
            self._close_file()  # else what could not be written would be written before the next line
            raise

    def _moved(self, file: TextIO) -> bool:
        try:
            return os.fstat(file.fileno()).st_ino != self.path.stat().st_ino
        except FileNotFoundError:
            return True

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
