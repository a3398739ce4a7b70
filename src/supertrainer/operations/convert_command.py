"""`scripts/convert_dcp_to_hf.py`: a pretraining checkpoint as a plain Hugging Face directory, and back."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.checkpoint.manifest import MANIFEST, BrokenCheckpointError, read_checkpoint, step_name, step_of
from supertrainer.checkpoint.store import INCOMING, CheckpointStore
from supertrainer.config.secrets import redact
from supertrainer.core.errors import CheckpointError, ConfigError, SupertrainerError
from supertrainer.core.files import is_disk_full, read_json, write_json

if TYPE_CHECKING:
    from supertrainer.models.pretrain import DecoderModel

DESCRIPTION = "A pretraining checkpoint as a plain Hugging Face directory that every engine serves, and back."
EXAMPLES = """examples:
  convert_dcp_to_hf.py runs/NAME/checkpoints OUT                     the newest complete step
  convert_dcp_to_hf.py runs/NAME/checkpoints OUT --name step-400
  convert_dcp_to_hf.py runs/NAME/checkpoints OUT --form granite      multipliers in the config, weights as trained
  convert_dcp_to_hf.py HF_DIRECTORY OUT --back                       OUT/step-00000000: model.source of a new run"""
METADATA = ".metadata"  # of a distributed checkpoint; its reader would import torch
_STEP = re.compile(r"(?:step-)?0*(\d+)")


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code, as `main.py` does."""
    parser = argparse.ArgumentParser(
        "convert_dcp_to_hf.py", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help="checkpoints/ of a run, the run, or a step; with --back a model")
    parser.add_argument("out", type=Path, help="directory to write; with --back a directory of steps")
    parser.add_argument("--name", help="the step, such as step-400; default: the newest complete one (--back: 0)")
    parser.add_argument("--base", help="a model whose config.json has the sizes, where no run's config is beside it")
    parser.add_argument(
        "--tokenizer", help="where the tokenizer is; default: with the run's model, its dataset or base"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--form", choices=("llama", "granite"), default="llama", help="default: llama, or Qwen3")
    parser.add_argument("--back", action="store_true", help="from Hugging Face to a distributed checkpoint")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT")
    try:
        given = parser.parse_args(argv)
    except SystemExit as ended:
        return int(ended.code or 0)
    try:
        print(_back(given) if given.back else _forth(given))
    except SupertrainerError as error:
        print(redact(str(error)), file=sys.stderr)
        return error.exit_code
    return 0


def _forth(given: argparse.Namespace) -> str:
    step = _find_step(given.source, given.name)
    if given.out.exists() and not given.overwrite:
        raise ConfigError(f"{given.out} is there already.", fix="name another directory, or add --overwrite.")
    from supertrainer.export.dcp import read_dcp, write_hf
    from supertrainer.models.pretrain import described_model

    state = read_dcp(step)
    model = described_model(step) or _model_of_base(given.base, step)
    rows = len(state["embedding.weight"])
    tokenizer = _tokenizer(given, step)
    if len(tokenizer) > rows:
        raise ConfigError(
            f"the tokenizer has {len(tokenizer)} tokens, and the model {rows}.",
            why="it isn't the one that the model was trained with.",
            fix="--tokenizer DIRECTORY names another.",
        )
    try:
        write_hf(
            given.out,
            model=model,
            vocab_size=rows,
            state=state,
            tokenizer=tokenizer,
            dtype=given.dtype,
            form=given.form,
        )
    except OSError as error:
        raise CheckpointError(
            f"{given.out} can't be written: {error}.",
            why="the disk is full; the unfinished files were removed." if is_disk_full(error) else "",
            fix="free some space, or name another directory.",
        ) from None
    return f"{step} → {given.out}: {model.shape(rows).parameters():,} parameters in {given.dtype}"


def _back(given: argparse.Namespace) -> str:
    from supertrainer.models.distributed_checkpoint import write_dcp
    from supertrainer.models.llama_format import from_llama
    from supertrainer.models.pretrain import MODEL_FILE

    number = _number(given.name) if given.name else 0
    store = CheckpointStore(given.out, keep_last=None, keep_best=None)
    if number in store.steps():
        raise ConfigError(
            f"{given.out / step_name(number)} is there already.", fix="--name step-N for another, or another OUT."
        )
    facts, plain = from_llama(given.source if given.source.exists() else str(given.source))
    staged = store.prepare() / step_name(number)
    with store.writing(step=number):
        staged.mkdir()
        write_dcp(staged, state=dict(plain))
        write_json(staged / MODEL_FILE, _node_of(facts))
    step = store.commit(staged, step=number, extra={"source": str(given.source)})
    return f"{given.source} → {step}: start a new run from it with model.source={step}"


def _find_step(source: Path, name: str | None) -> Path:
    """The step directory that the command names, once it is found to be whole.

    Raises:
        ConfigError: there is none of this name.
        CheckpointError: it is broken or half-written.
    """
    if not source.is_dir():
        raise ConfigError(
            f"{source} {'is a file' if source.exists() else 'is not there'}.",
            fix="name checkpoints/ of a pretraining run, the run, or one of its steps.",
        )
    if name is None and (step_of(source.name) is not None or (source / METADATA).is_file()):
        return _whole(source)
    directory = source / "checkpoints" if (source / "checkpoints").is_dir() else source
    store = CheckpointStore(directory, keep_last=None, keep_best=None)
    steps = store.steps()
    if name is not None:
        wanted = _number(name)
        if wanted not in steps:
            raise ConfigError(f"{directory} has no {step_name(wanted)}.", why=_told(directory), fix=_choice(steps))
        return _whole(directory / step_name(wanted))
    latest = store.find_latest()
    if latest is None:
        raise ConfigError(
            f"{source} holds no step directory.", fix="name checkpoints/ of a pretraining run, or one of its steps."
        )
    return latest.path


def _whole(step: Path) -> Path:
    """A step directory that is what its manifest says. One by another program has none: its reader judges it.

    Raises:
        CheckpointError: with the steps beside it.
    """
    around = step.resolve().parent
    unfinished = around.name == INCOMING
    if step_of(step.name) is None and not unfinished and not (step / MANIFEST).exists():
        return step
    try:
        if unfinished:
            raise BrokenCheckpointError("it is where a run writes its next checkpoint, and was never finished")
        read_checkpoint(step, hashes=True)
    except BrokenCheckpointError as error:
        directory = around.parent if unfinished else around
        others = CheckpointStore(directory, keep_last=None, keep_best=None).steps()
        raise CheckpointError(
            f"{step} is broken or half-written: {error}.",
            why=f"a model made of it would hold other weights than the run had. {_told(directory)}",
            fix=_choice([found for found in others if step_name(found) != step.name]),
        ) from None
    return step


def _told(directory: Path) -> str:
    """The steps in a directory, with what is wrong with each that isn't whole."""
    words = []
    for step in CheckpointStore(directory, keep_last=None, keep_best=None).steps():
        try:
            read_checkpoint(directory / step_name(step), hashes=False)
            words.append(step_name(step))
        except (BrokenCheckpointError, FileNotFoundError) as error:
            words.append(f"{step_name(step)} (broken: {error})")
    return f"{directory} has {', '.join(words) or 'no step'}."


def _choice(steps: Sequence[int]) -> str:
    if not steps:
        return "go on with the run until it has written a checkpoint, or restore the files from a copy."
    return f"--name {step_name(max(steps))}, or without --name: the newest that is whole."


def _number(name: str) -> int:
    match = _STEP.fullmatch(name)
    if match is None:
        raise ConfigError(f"--name {name} is no step.", fix="write it as step-400.")
    return int(match[1])


def _model_of_base(base: str | None, step: Path) -> DecoderModel:
    from supertrainer.models.llama_format import from_llama
    from supertrainer.models.pretrain import DecoderModel
    from supertrainer.models.schema import DecoderModelConfig

    if base is None:
        raise ConfigError(
            f"the sizes of the model in {step} aren't known.",
            why="no config.json of a run is above it.",
            fix="leave it in its run directory, or --base MODEL names a Hugging Face model of the same sizes.",
        )
    facts, _ = from_llama(base)
    return DecoderModel(DecoderModelConfig.model_validate(_node_of(facts)))


def _node_of(facts: dict[str, Any]) -> dict[str, Any]:
    """The config of a decoder of these sizes, in the standard parametrization."""
    sizes = {name: value for name, value in facts.items() if name not in ("vocab_size", "rope_scaling")}
    return {
        "_target_": "supertrainer.models.pretrain.DecoderModel",
        **sizes,
        "rope_scaling": facts["rope_scaling"] or None,
        "vocab_multiple": 1,
    }


def _tokenizer(given: argparse.Namespace, step: Path) -> Any:
    """From where the command says, else from the run: its model, its dataset's; else from the base."""
    from transformers import AutoTokenizer

    from supertrainer.models.tokenizers import find_source_of_tokenizer

    run = step.resolve().parents[1]
    if given.tokenizer is not None:
        reference = given.tokenizer
    elif (run / "model" / "tokenizer_config.json").is_file():
        reference = str(run / "model")
    else:
        reference = _dataset_tokenizer(run) or given.base
    if reference is None:
        raise ConfigError(
            f"the tokenizer of {step} isn't known.",
            why="its run has written no model yet, and its dataset names none.",
            fix="--tokenizer DIRECTORY.",
        )
    return AutoTokenizer.from_pretrained(find_source_of_tokenizer(reference, model=None).directory)


def _dataset_tokenizer(run: Path) -> str | None:
    file = run / "config.json"
    node = read_json(file)["config"].get("dataset") if file.is_file() else None
    return None if node is None else node.get("tokenizer")
