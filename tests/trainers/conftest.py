"""Training runs in tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def settled_imports() -> Iterator[None]:
    """The library collects garbage before every training; walking over half a million imported objects takes longer
    than training a tiny model."""
    import peft
    import transformers

    assert transformers.Trainer
    assert peft.LoraConfig
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
