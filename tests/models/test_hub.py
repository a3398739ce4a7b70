"""Models by their Hub id: fetched at a commit, then found in the cache without a connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopback_hub import LoopbackHub
from tiny_models import save_tiny

CODE = """
import json, sys
from pathlib import Path
from supertrainer.core.errors import ConfigError
from supertrainer.models.bert import BertModel
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import BertModelConfig

def model(source, revision=None):
    return BertModel(BertModelConfig(_target_="x", source=source, revision=revision))

answers = {}
for source, revision in json.loads(sys.argv[1]):
    try:
        tiny = model(source, revision)
        built = tiny.build(label_names=("a", "b"), seed=1)
        answers[f"{source}@{revision}"] = [tiny.source.commit, built.bert.pooler.dense.weight.sum().item()]
    except ConfigError as error:
        answers[f"{source}@{revision}"] = str(error)
if len(sys.argv) > 2:
    tiny = model("someone/tiny", "v1")
    adapted = tiny.build(label_names=("a", "b"), seed=1, peft_kwargs={"r": 2, "target_modules": ["query"]})
    save_trained(adapted, tiny.tokenizer(), Path(sys.argv[2]), base=tiny.base_reference())
    answers["adapter"] = load_trained(sys.argv[2]).label_names
print(json.dumps(answers))
"""


def run(hub: LoopbackHub, cache: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **hub.environment(cache=cache), **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process with the hub, and then one without, made of the same ids."""
    folder = tmp_path_factory.mktemp("hub")
    first, second = save_tiny(folder / "first", seed=1), save_tiny(folder / "second", seed=2)
    pickled = {file.name: file.read_bytes() for file in first.glob("*.json")} | {"pytorch_model.bin": b"pickle"}
    wanted = [["someone/tiny", None], ["someone/tiny", "v1"], ["someone/tiny", "v9"], ["someone/pickled", None]]
    wanted.append(["someone/nothing", None])
    found: dict[str, Any] = {"adapter": str(folder / "adapter")}
    with LoopbackHub() as hub:
        found["old"] = hub.add("someone/tiny", first, branch="v1")
        found["new"] = hub.add("someone/tiny", second)
        hub.add("someone/pickled", pickled)
        found["online"] = run(hub, folder / "cache", json.dumps(wanted), str(folder / "adapter"))
    found["offline"] = run(hub, folder / "cache", json.dumps([*wanted[:2], wanted[-1]]), HF_HUB_OFFLINE="1")
    return found


def test_a_revision_is_taken_at_its_commit(answers: dict[str, Any]) -> None:
    assert answers["online"]["someone/tiny@None"][0] == answers["new"]
    assert answers["online"]["someone/tiny@v1"][0] == answers["old"]
    assert answers["online"]["someone/tiny@v1"][1] != answers["online"]["someone/tiny@None"][1]


def test_the_cache_serves_without_a_connection(answers: dict[str, Any]) -> None:
    for name in ("someone/tiny@None", "someone/tiny@v1"):
        assert answers["offline"][name] == answers["online"][name]
    assert "not in the Hugging Face cache, and the Hub can't be reached" in answers["offline"]["someone/nothing@None"]


def test_what_the_hub_lacks_is_named(answers: dict[str, Any]) -> None:
    online = answers["online"]
    assert "someone/tiny has no revision 'v9'" in online["someone/tiny@v9"]
    assert "no such local path, and no such model on the Hub" in online["someone/nothing@None"]
    assert "has no safetensors weights" in online["someone/pickled@None"]


def test_an_adapter_remembers_id_and_commit(answers: dict[str, Any]) -> None:
    folder = Path(answers["adapter"])
    written = json.loads((folder / "adapter_config.json").read_text())
    assert (written["base_model_name_or_path"], written["revision"]) == ("someone/tiny", answers["old"])
    base = json.loads((folder / "base.json").read_text())
    assert base == {"source": "someone/tiny", "revision": "v1", "commit": answers["old"]}
    assert answers["online"]["adapter"] == ["a", "b"]
