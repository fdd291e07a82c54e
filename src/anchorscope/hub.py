"""What the Hugging Face hub can refuse, in words a person can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from anchorscope.errors import HubError, printable

_TOKEN_HINT = "Make a token at the hub's settings page, then: export HF_TOKEN=…  (or run: hf auth login)"  # noqa: S105
_OFFLINE_HINT = "Check the network, set HF_ENDPOINT for a mirror, or give a local folder or file in the study."


@contextmanager
def hub_errors(what: str, kind: Literal["model", "dataset"]) -> Iterator[None]:
    """Turn every failure of a hub call about `what` into a HubError that says what to do."""
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
            f"Accept its terms on {page} with the account the token belongs to.",
        ) from None
    except errors.RevisionNotFoundError:
        raise HubError(
            f"the {kind} {what} has no such revision", "Correct `revision`, or leave it out for main."
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubError(
            f"the hub has no {kind} {what}, or it is private",
            f"Check the spelling (owner/name). For a private one: {_TOKEN_HINT}",
        ) from None
    except errors.LocalEntryNotFoundError:
        raise HubError(
            f"the hub is out of reach, and the {kind} {what} is not in the local cache", _OFFLINE_HINT
        ) from None
    except errors.EntryNotFoundError as error:
        raise HubError(f"the {kind} {what} lacks a file that is needed: {_first_line(error)}") from None
    except errors.HFValidationError:
        raise HubError(f"'{what}' is not a hub id", "It should be owner/name, a local folder or a file.") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no answer")
        raise HubError(f"the hub answered {status} for the {kind} {what}", f"{_first_line(error)}") from None
    except Exception as error:
        if not is_network(error):
            raise
        raise HubError(
            f"the hub is out of reach ({_first_line(error)}), needed for the {kind} {what}", _OFFLINE_HINT
        ) from None


def is_network(error: BaseException) -> bool:
    """Whether an exception of any HTTP client means: no connection. The hub's client has changed twice."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names & {"ConnectionError", "ConnectError", "TransportError", "TimeoutException", "OfflineModeIsEnabled"}
    )


def _first_line(error: BaseException) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[0], 200)
