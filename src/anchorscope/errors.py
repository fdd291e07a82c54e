"""Errors that a user can fix. They say what is wrong, where, and what to do about it.

Everything that the package raises on purpose derives from `AnchorscopeError`. The command line prints such an
error without a traceback. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

EXIT_ERROR = 3  # 0 done, 2 wrong command line (typer's own), 3 an AnchorscopeError, 130 interrupted


class AnchorscopeError(Exception):
    """An error with a `message` that says what is wrong and a `hint` that says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class StudyError(AnchorscopeError):
    """A study file, or the definition of a question set, that is not valid."""


class QuestionsError(AnchorscopeError):
    """Questions that cannot be read: a missing or broken file, a row of the wrong shape."""


class HubError(AnchorscopeError):
    """A model or dataset that the hub did not provide."""


class GradeError(AnchorscopeError):
    """A judge that cannot be reached, or gives no usable reply."""


class ModelError(AnchorscopeError):
    """A model folder or file that cannot be used."""


class DeviceError(AnchorscopeError):
    """A GPU that stopped responding in this process."""


class StoreError(AnchorscopeError):
    """A run directory that cannot be read, written or resumed."""


class DetectorError(AnchorscopeError):
    """A detector that cannot be read, or does not fit the model or answers given."""


class ProbeError(AnchorscopeError):
    """Samples that probes cannot be fitted on or applied to, or saved probes that cannot be read."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the list of choices if none is similar."""
    known = sorted(choices)
    by_lower = {choice.lower(): choice for choice in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{by_lower[near[0]]}'?"
    return f"choose from: {', '.join(known)}" if known else ""


def shown(value: object, limit: int = 60) -> str:
    """A value as a person would write it, cut to `limit`. It works for any value that a file can hold."""
    try:
        return printable(repr(value), limit)
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"


def reason_of(error: BaseException) -> str:
    """The message of another library's exception, as one line that is safe to print."""
    return printable(" ".join(str(error).split()), 200)


_USERINFO = re.compile(r"(?<=:/)(/?)[^/\s@]*@")  # user:password@ of a URL; a path has one slash of the two


def without_key(text: str) -> str:
    """Text in which `…` stands for the user name, password or key of every URL."""
    return _USERINFO.sub(r"\1…@", text) if ":/" in text else text


def printable(text: str, limit: int = 80) -> str:
    """Text from a file that may be hostile, cut to `limit` and safe to send to a terminal, without keys in a URL."""
    text = without_key(text)
    cut = text[: limit + 1]
    safe = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut[:limit])
    return safe + ("…" if len(text) > limit else "")


_TOKEN_HINT = "Create a token on the hub's settings page, then: export HF_TOKEN=…  (or run: hf auth login)"  # noqa: S105
_OFFLINE_HINT = {
    "model": "Check the network, set HF_ENDPOINT for a mirror, or give a folder or a .gguf file as the model.",
    "dataset": "Check the network, set HF_ENDPOINT for a mirror, or read the datasets from files: --data DIR.",
}


def out_of_reach(what: str, kind: Literal["model", "dataset"], reason: str = "") -> HubError:
    """The error for a hub that cannot be reached, when the local cache has no copy either."""
    reason = reason or ("offline mode: HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "")
    why = f" ({reason})" if reason else ""
    return HubError(
        f"the hub is out of reach{why}, and the {kind} {what} is not in the local cache", _OFFLINE_HINT[kind]
    )


@contextmanager
def hub_errors(what: str, kind: Literal["model", "dataset"]) -> Iterator[None]:
    """Turn every failure of a hub call for `what` into a HubError that says what to do."""
    from huggingface_hub import errors, get_token

    try:
        yield
    except HubError:
        raise
    except errors.GatedRepoError:
        page = f"the {kind}'s page on the hub"
        if get_token() is None:
            raise HubError(
                f"the {kind} {what} is gated and no token was found",
                f"Accept its terms on {page}. {_TOKEN_HINT}",
            ) from None
        raise HubError(
            f"the {kind} {what} is gated and your token has no access to it",
            f"Accept its terms on {page} with the account that the token belongs to.",
        ) from None
    except errors.RevisionNotFoundError:
        raise HubError(
            f"the {kind} {what} has no such revision", "Correct `revision`, or remove it to use main."
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubError(
            f"the hub has no {kind} {what}, or it is private",
            f"Check the spelling (owner/name). For a private one: {_TOKEN_HINT}",
        ) from None
    except errors.LocalEntryNotFoundError:
        raise out_of_reach(what, kind) from None
    except errors.EntryNotFoundError as error:
        raise HubError(f"the {kind} {what} lacks a required file: {_first_line(error)}") from None
    except errors.HFValidationError:
        raise HubError(f"'{what}' is not a hub id", "Write owner/name, or the path of a folder or file.") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no answer")
        raise HubError(f"the hub answered {status} for the {kind} {what}", f"{_first_line(error)}") from None
    except Exception as error:
        if not is_network(error):
            raise
        raise out_of_reach(what, kind, _first_line(error)) from None


def is_network(error: BaseException) -> bool:
    """Whether an exception of any HTTP client means that there is no connection. The hub's client has changed twice."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names & {"ConnectionError", "ConnectError", "TransportError", "TimeoutException", "OfflineModeIsEnabled"}
    )


def _first_line(error: BaseException) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[0], 200)
