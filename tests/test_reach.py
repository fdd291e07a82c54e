"""Whether the hub is in reach is known in two seconds, whatever the network does."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from anchorscope import reach
from hub_server import Hub


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    reach._opens.cache_clear()
    for name in ("HF_HUB_OFFLINE", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield
    reach._opens.cache_clear()


def test_a_hub_that_listens_is_in_reach_and_offline_mode_hides_it(hub: Hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert reach.hub_in_reach()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not reach.hub_in_reach()


def test_a_refused_connection_is_known_at_once(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens on the discard port
    start = time.monotonic()
    assert not reach.hub_in_reach()
    assert time.monotonic() - start < 1


def test_a_name_that_is_looked_up_for_ever_is_given_up_on(monkeypatch):
    ended = threading.Event()

    def look_up(*args: object, **kwargs: object) -> None:
        ended.wait(20)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "create_connection", look_up)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    start = time.monotonic()
    assert not reach.hub_in_reach()
    assert time.monotonic() - start < 3
    assert not reach.hub_in_reach()  # asked once a process
    assert time.monotonic() - start < 3
    ended.set()


def test_behind_a_proxy_the_proxy_is_the_door(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert reach._door() == ("proxy.example", 3128)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:7777")
    assert reach._door() == ("127.0.0.1", 7777)
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.delenv("HTTPS_PROXY")
    assert reach._door() == ("huggingface.co", 443)
