"""The check of a pretraining: documents, tokenizer, decoder, the table of μP, steps, memory, the first rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.placement import placement
from supertrainer.data.collation import IGNORED
from supertrainer.data.preview import TextView, text_pieces
from supertrainer.operations.check_place import check_directory, check_disk
from supertrainer.operations.check_result import CheckResult, Table
from supertrainer.trainers.devices import gpu_memory_bytes
from supertrainer.trainers.memory import size_text
from supertrainer.trainers.pretrain_schema import micro_batch_rows
from supertrainer.trainers.pretraining.memory import estimate_memory
from supertrainer.trainers.pretraining.saving import checkpoint_bytes
from supertrainer.trainers.pretraining.strategy import ASSUMED_GPU_BYTES, strategy_in_words

SHOWN_ROWS = 2


def check(config: Config, *, dataset: Any) -> CheckResult:
    """Reads the data and builds the decoder without weights. Nothing is written but a tokenizer that is trained."""
    result = CheckResult()
    training = config.model_copy(update={"operation": "train"})
    result.attempt(lambda: check_directory(training, result))
    result.attempt(lambda: build(config.tracker, allowed=config.allow_targets) if config.tracker else None)
    result.attempt(lambda: _documents(dataset.facts(), result))
    tokenizer = result.attempt(dataset.tokenizer)
    if tokenizer is None:
        return result
    result.facts["tokenizer"] = f"{len(tokenizer):,} tokens"
    shape = result.attempt(lambda: _decoder(config, len(tokenizer), result))
    if shape is None:
        return result
    _steps(config, result, parameters=shape.parameters())
    result.attempt(lambda: _rows(config, dataset, tokenizer, result))
    _memory(config, shape, result)
    result.attempt(lambda: check_disk(config, result, checkpoint=checkpoint_bytes(shape.parameters())))
    return result


def _documents(facts: Mapping[str, Mapping[str, Any]], result: CheckResult) -> None:
    for name, source in facts.items():
        count, held_out = source["documents"], source["held_out"]
        text = f"{source['share']:.1%} of the tokens; {source['files']:,} files, {size_text(source['bytes'])}"
        text += "" if count is None else f"; {count:,} documents, {held_out:,} of them held out"
        result.facts[f"source {name}"] = text


def _decoder(config: Config, vocab_size: int, result: CheckResult) -> Any:
    """Its sizes, and the table that it is initialised, optimized and exported by."""
    model = build(config.model, allowed=config.allow_targets)
    shape, table = model.shape(vocab_size), model.table(vocab_size)
    without = shape.parameters(embeddings=False)
    result.facts["decoder"] = (
        f"{shape.num_layers} layers of width {shape.hidden_size:,}, {shape.num_heads} heads of {shape.head_dim} over "
        f"{shape.num_kv_heads}, feed-forward {shape.ffn_size:,}; vocabulary {shape.vocab_size:,}"
        f"{', tied' if shape.tie_embeddings else ''}"
    )
    result.facts["parameters"] = f"{shape.parameters():,}, {without:,} without embedding and head"
    chosen = config.model.parametrization
    title = f"parametrization: {chosen.name}"
    if chosen.base is not None:
        title += f" from width {chosen.base.hidden_size:,}, weight decay {chosen.weight_decay}"
    result.tables[title] = _by_role(table)
    forward = vars(table.multipliers)
    result.facts["forward pass"] = ", ".join(f"{name} × {value:.6g}" for name, value in forward.items())
    return shape


def _by_role(table: Any) -> Table:
    """The table's rows, those that are alike in one."""
    groups: dict[tuple[str, ...], int] = {}
    for rule in table.rules.values():
        std = "1" if rule.std is None else f"{rule.std:.4g}"
        numbers = (f"{value:.4g}" for value in (rule.lr, rule.weight_decay, rule.eps))
        key = (str(rule.role), f"{rule.ratio:.4g}", std, *numbers)
        groups[key] = groups.get(key, 0) + 1
    header = ("parameters", "tensors", "fan-in ratio", "initial std", "lr ×", "weight decay ×", "eps ×")
    return [header, *((role, str(count), *rest) for (role, *rest), count in groups.items())]


def _steps(config: Config, result: CheckResult, *, parameters: int) -> None:
    trainer, there = config.trainer, placement()
    rows, length = trainer.global_batch_size, trainer.sequence_length
    micro = micro_batch_rows(trainer, processes=there.processes)
    result.facts["optimizer steps"] = f"{trainer.max_steps:,}, schedule {trainer.schedule.name}"
    result.facts["rows of a step"] = (
        f"{rows} of {length:,} tokens = {micro} × {rows // micro // there.processes} micro-batches × "
        f"{there.processes} processes"
    )
    tokens = trainer.max_steps * rows * length
    result.facts["tokens"] = f"{tokens:,} in the run, {tokens / parameters:.3g} for each parameter"


def _memory(config: Config, shape: Any, result: CheckResult) -> None:
    """The strategy that the processes will have, and the memory of each under it."""
    parallel, there = config.trainer.parallel, placement()
    here = gpu_memory_bytes()
    gpu_bytes = (here or ASSUMED_GPU_BYTES) if there.has_gpu else None
    result.facts["processes"] = strategy_in_words(
        parallel,
        processes=there.processes,
        parameters=shape.parameters(),
        gpu_bytes=gpu_bytes,
        assumed=here is None,
    )
    result.take_memory(estimate_memory(shape, config.trainer, there=there, gpu_bytes=gpu_bytes))


def _rows(config: Config, dataset: Any, tokenizer: Any, result: CheckResult) -> None:
    """The first rows of the first step, and whether there are held-out rows where an evaluation wants some."""
    trainer = config.trainer
    dataset.require_length(
        sequence_length=trainer.sequence_length, global_batch_size=trainer.global_batch_size, steps=trainer.max_steps
    )
    stream = dataset.open(sequence_length=trainer.sequence_length, global_batch_size=trainer.global_batch_size)
    try:
        rows = stream.next_step()
    finally:
        stream.close()
    result.views["train"] = [_view(rows, place, tokenizer) for place in range(min(SHOWN_ROWS, len(rows.tokens)))]
    if trainer.eval_every:
        held_out = dataset.validation(sequence_length=trainer.sequence_length, rows=trainer.eval_rows)
        result.facts["evaluation"] = f"{len(held_out.tokens):,} held-out rows, every {trainer.eval_every:,} steps"


def _view(rows: Any, place: int, tokenizer: Any) -> TextView:
    ids = rows.tokens[place].tolist()
    labels = [IGNORED, *rows.targets[place].tolist()]  # the first token is asked of nobody
    learnt = sum(label != IGNORED for label in labels)
    return TextView(f"step 1, row {place}", text_pieces(ids, labels, tokenizer), len(ids), learnt)
