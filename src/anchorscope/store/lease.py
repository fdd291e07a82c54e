"""One writer on object storage, where nothing can be locked: a lease that its holder renews and others respect.

A lease is a numbered object. The store itself decides who makes the next number, so two never hold the same one; the
highest number holds. A holder that renews it no more, because it was killed or cut off, is taken over by the next
number. Ages are told by the store's clock alone.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time

from anchorscope.errors import StoreError
from anchorscope.store.remote import Remote

LEASE = ".lease-"
STALE, RENEW = 60.0, 15.0  # seconds: after which a lease that is not renewed is void; after which it is renewed


class Lease:
    """The right to write below a place, held until `release`."""

    def __init__(self, root: Remote, holder: str) -> None:
        self.root, self._content = root, f"{holder}\n{secrets.token_hex(8)}\n".encode()
        self._path, self._renewed = root, 0.0
        self._lost: str | None = None
        self._ended, self._renewing = threading.Event(), threading.Lock()

    def take(self) -> None:
        """Take it, or say who has it."""
        # 1. Who has it?
        others = _leases(self.root)
        if others and (left := STALE - self._age(others[-1])) > 0:
            raise _refused(self.root, others[-1], left)
        # 2. The next number: one of several who try makes it.
        self._path = self.root / f"{LEASE}{_number(others[-1]) + 1 if others else 1:06d}"
        begin_time = time.monotonic()
        try:
            self._path.put(self._content, new=True)
        except FileExistsError:
            raise _refused(self.root, self._path, STALE) from None
        # 3. Whoever looked long ago may have made a number beside that of another one.
        for other in _leases(self.root):
            if other not in (*others, self._path):
                self._path.unlink(missing_ok=True)
                raise _refused(self.root, other, STALE)
        for other in others:
            other.unlink(missing_ok=True)
        # 4. Renew it from here on.
        self._renewed = begin_time
        _taken_here[str(self.root)] = self
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def check(self) -> None:
        """Raise where it is no longer ours, or cannot be known to be."""
        if self._lost is None and time.monotonic() - self._renewed > STALE:
            self._lost = "could not be renewed for too long: the store was out of reach, or this process was stopped"
        if self._lost is not None:
            raise StoreError(
                f"the lease of {self.root} {self._lost}", "Finished work is kept. Run the same command again to resume."
            )

    def release(self) -> None:
        self._ended.set()
        _taken_here.pop(str(self.root), None)
        with self._renewing, contextlib.suppress(OSError):
            if self._lost is None and self._path.read_bytes() == self._content:
                self._path.unlink(missing_ok=True)

    def _renew(self) -> None:
        """Write it again from time to time, until it is let go of or taken over."""
        while not self._ended.wait(RENEW) and self._lost is None:
            begin_time = time.monotonic()
            # out of reach for a moment is no harm; `check` knows when it is for too long
            with self._renewing, contextlib.suppress(OSError):
                last = _leases(self.root)[-1:]
                if last != [self._path] or last[0].read_bytes() != self._content:
                    self._lost = f"was taken over by {_holder(last[0]) if last else 'another process'}"
                elif not self._ended.is_set():
                    self._path.put(self._content)
                    self._renewed = begin_time

    def _age(self, lease: Remote) -> float:
        """Seconds since it was renewed: its time against that of an object made now, both by the store's clock."""
        now = self.root / f"{LEASE}now-{secrets.token_hex(4)}"
        try:
            now.put(b"")
            return (now.modified() - lease.modified()).total_seconds()
        except FileNotFoundError:  # let go of meanwhile
            return STALE
        finally:
            now.unlink(missing_ok=True)


_taken_here: dict[str, Lease] = {}  # by this process


def check_leases(path: Remote) -> None:
    """Raise where `path` is below a place whose lease this process had, and has lost."""
    for root, lease in list(_taken_here.items()):
        if str(path).startswith(f"{root}/"):
            lease.check()


def _leases(root: Remote) -> list[Remote]:
    """In order; the last one counts."""
    return sorted((lease for lease in root.glob(f"{LEASE}*") if lease.name[len(LEASE) :].isdigit()), key=_number)


def _number(lease: Remote) -> int:
    return int(lease.name[len(LEASE) :])


def _holder(lease: Remote) -> str:
    try:
        return lease.read_text().split("\n")[0] or "another process"
    except OSError:
        return "another process"


def _refused(root: Remote, lease: Remote, left: float) -> StoreError:
    return StoreError(
        f"{root} is being written by {_holder(lease)}",
        f"Wait for it to end, or stop it. If it was killed, its lease is void in {max(1, round(left))} s.",
    )
