"""What every test runs under: one thread, no Hub, no network beyond this machine; slow tests come last."""

from __future__ import annotations

import gc
import ipaddress
import os
import socket
import sys

import pytest

# Read by torch, tokenizers and huggingface_hub when they are imported, so set before any test module is.
os.environ["OMP_NUM_THREADS"] = "1"  # two threads on busy cores are several times slower than one
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"  # transformers and datasets follow it
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["MPLBACKEND"] = "Agg"
for name in [name for name in os.environ if name.startswith("SUPERTRAINER__")]:
    del os.environ[name]  # the config overrides of whoever runs the tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mistake shows in the first seconds: tests marked slow run after all others, each part in its own order."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_collection_finish() -> None:
    """What the test modules imported stays to the end: every training collects garbage, and needn't walk through it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Gives torch one thread again where a test before changed that; light tests don't import it for this."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses connections from this process to another machine: a test that needs one fails, and says so."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and not _is_loopback(str(address[0])):
            raise PermissionError(f"a test tried to reach {address}: tests run offline")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
