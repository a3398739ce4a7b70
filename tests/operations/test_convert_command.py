"""scripts/convert_dcp_to_hf.py: a run's checkpoint as a plain model, and back as the start of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.models.decoder import Decoder
from supertrainer.models.distributed_checkpoint import write_dcp
from supertrainer.operations.convert_command import main
from tiny_decoders import decoder_tokenizer
from tiny_mup import SIZES, decoder_model, mup, some_tokens, started

SCRIPT = Path(__file__).parents[2] / "scripts" / "convert_dcp_to_hf.py"
PARAMETRIZATION = mup(16, output_multiplier=4.0)


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, dict[int, Decoder]]:
    """A run directory with the checkpoints of two steps, and the decoders that they hold."""
    directory = tmp_path / "runs" / "a"
    store = CheckpointStore(directory / "checkpoints", keep_last=None, keep_best=None)
    decoders = {}
    for step in (200, 400):
        decoders[step] = started(decoder_model(parametrization=PARAMETRIZATION), seed=step)
        staged = store.prepare() / "staged"
        staged.mkdir()
        write_dcp(staged, state=decoders[step].state_dict())
        store.commit(staged, step=step, extra={})
    decoder_tokenizer().save_pretrained(tmp_path / "tokenizer")
    target = {"_target_": "supertrainer.models.pretrain.DecoderModel"}
    node = {**target, **SIZES, "parametrization": PARAMETRIZATION, "source": "where/it/started"}
    tree = {"model": node, "dataset": {"tokenizer": str(tmp_path / "tokenizer")}}
    (directory / "config.json").write_text(json.dumps({"config": tree}))
    return directory, decoders


def test_a_step_becomes_a_plain_model_and_a_start_again(
    run: tuple[Path, dict[int, Decoder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, decoders = run
    out, tokens = tmp_path / "out", some_tokens()
    assert main([str(directory / "checkpoints"), str(out), "--name", "step-200"]) == 0
    assert torch.equal(AutoModelForCausalLM.from_pretrained(out)(tokens).logits, decoders[200](tokens))
    assert main([str(directory / "checkpoints"), str(out), "--overwrite"]) == 0
    assert torch.equal(AutoModelForCausalLM.from_pretrained(out)(tokens).logits, decoders[400](tokens))
    assert main([str(out), str(tmp_path / "steps"), "--back"]) == 0
    step = tmp_path / "steps" / "step-00000000"
    assert f"model.source={step}" in capsys.readouterr().out
    for source in (step, directory / "checkpoints" / "step-00000400"):
        began = started(decoder_model(parametrization=PARAMETRIZATION, source=str(source)))
        assert torch.equal(began(tokens), decoders[400](tokens))
    assert main([str(step), str(tmp_path / "again"), "--tokenizer", str(out)]) == 0
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path / "again")(tokens).logits, decoders[400](tokens))


def test_sizes_can_come_from_another_model(run: tuple[Path, dict[int, Decoder]], tmp_path: Path) -> None:
    directory, _ = run
    assert main([str(directory), str(tmp_path / "base")]) == 0
    plain = started(decoder_model())
    (tmp_path / "alone").mkdir()
    write_dcp(tmp_path / "alone", state=plain.state_dict())
    assert main([str(tmp_path / "alone"), str(tmp_path / "out"), "--base", str(tmp_path / "base")]) == 0
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(loaded(some_tokens()).logits, plain(some_tokens()))


def test_a_wrong_command_says_what_is_there(
    run: tuple[Path, dict[int, Decoder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = run
    out = str(tmp_path / "out")
    for words, said in (
        ([str(directory), out, "--name", "step-300"], "has no step-00000300"),
        ([str(directory), out, "--name", "last"], "--name last is no step"),
        ([str(directory), str(tmp_path)], "is there already"),
        ([str(directory), out, "--name", "step-300"], "has step-00000200, step-00000400."),
        ([str(tmp_path / "nothing"), out], "nothing is not there"),
        ([str(tmp_path / "tokenizer"), out], "holds no step directory"),
        ([str(directory)], "the following arguments are required: out"),
    ):
        assert main(words) == 2, words
        assert said in capsys.readouterr().err


def damage(step: Path, how: str) -> None:
    weights = next(step.glob("*.distcp"))
    match how:
        case "cut off":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "other bytes":
            weights.write_bytes(weights.read_bytes()[:-100] + bytes(100))
        case "no manifest":
            (step / "manifest.json").unlink()
        case _:
            (step / how).unlink()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut off", "bytes, the manifest.json says"),
        ("other bytes", "has changed since it was written"),
        ("no manifest", "it has no manifest.json"),
        (".metadata", ".metadata is missing"),
    ],
)
def test_a_broken_step_is_refused_with_the_steps_that_are_there(
    run: tuple[Path, dict[int, Decoder]], tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, said: str
) -> None:
    directory, decoders = run
    step, out = directory / "checkpoints" / "step-00000400", tmp_path / "out"
    damage(step, how)
    for words in ([str(directory), "--name", "step-400"], [str(step)]):
        assert main([words[0], str(out), *words[1:]]) == 1
        told = capsys.readouterr().err
        assert f"CheckpointError: {step} is broken or half-written: " in told
        assert said in told
        assert "checkpoints has step-00000200, step-00000400" in told
        assert "Fix: --name step-00000200" in told
        assert not out.exists()
    assert main([str(directory), str(out)]) == 0  # the newest that is whole
    assert torch.equal(AutoModelForCausalLM.from_pretrained(out)(some_tokens()).logits, decoders[200](some_tokens()))


def test_what_a_killed_run_left_unfinished_is_refused(
    run: tuple[Path, dict[int, Decoder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = run[0] / "checkpoints"
    (checkpoints / "step-00000400").rename(checkpoints / ".incoming" / "step-400")
    assert main([str(checkpoints / ".incoming" / "step-400"), str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert "is where a run writes its next checkpoint" in told
    assert "has step-00000200" in told


def test_a_cut_off_checkpoint_of_another_program_is_told(
    run: tuple[Path, dict[int, Decoder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    write_dcp(alone, state=run[1][400].state_dict())
    damage(alone, "cut off")
    assert main([str(alone), str(tmp_path / "out"), "--base", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"CheckpointError: {alone} can't be read: " in told
    assert "Traceback" not in told


def test_the_script_says_how_it_is_used() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True)
    assert "--name step-400" in done.stdout
