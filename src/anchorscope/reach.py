"""Check whether the hub can be reached in two seconds, instead of a minute of a client's retries."""

from __future__ import annotations

import os
import socket
import threading
from functools import cache
from urllib.parse import urlsplit

SECONDS = 1.5  # time limit for the name lookup and the connection


def hub_in_reach() -> bool:
    """Whether a connection to the hub can be opened, tested once per process. False in offline mode."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return False
    return _opens(_door())


def _door() -> tuple[str, int]:
    """Host and port that every request goes through, either the proxy's or the hub's own."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    scheme = urlsplit(endpoint).scheme
    host = urlsplit(endpoint).hostname or ""
    proxies = (
        os.environ.get(name) for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    )
    proxy = next((address for address in proxies if address), None)
    if proxy and host not in ("127.0.0.1", "localhost"):
        through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        return through.hostname or "", through.port or 8080
    return host, urlsplit(endpoint).port or (443 if scheme == "https" else 80)


@cache
def _opens(door: tuple[str, int]) -> bool:
    opened: list[bool] = []

    def knock() -> None:
        try:
            with socket.create_connection(door, timeout=SECONDS):
                opened.append(True)
        except OSError:
            opened.append(False)

    # a failing name lookup may take half a minute and cannot be shortened
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(SECONDS + 0.3)
    return opened == [True]
