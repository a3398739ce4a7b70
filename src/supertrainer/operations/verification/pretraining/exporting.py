"""What is written for other programs computes what was trained, and what is read from there is what was written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from supertrainer.checkpoint.manifest import step_name
from supertrainer.core.errors import ConfigError
from supertrainer.export.dcp import write_hf
from supertrainer.models.distributed_checkpoint import lone_process_is_meant, read_dcp
from supertrainer.models.llama_format import Form, folded_factors
from supertrainer.models.loading import quiet_transformers
from supertrainer.operations.verification.padding import distance
from supertrainer.operations.verification.pretraining.reduction import STEPS, with_model
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, Trained
from supertrainer.operations.verification.rows import Row, not_applicable, within

BOUND = 1e-5  # of the greatest logit: transformers adds in another order
BACK_BOUND = 1e-6  # where a factor isn't a power of two; else to the bit


def check_export(bench: PretrainWorkbench, whole: Trained) -> Iterator[Row]:
    """Compares logits of the last step with those of transformers, and of a decoder that starts from what was written.

    Args:
        whole: has trained the reduced config, and written its model.
    """
    with lone_process_is_meant():
        state = read_dcp(whole.run.checkpoints / step_name(STEPS))
    decoder = bench.model().build(bench.vocab_size)
    decoder.load_state_dict(state)
    tokens = torch.from_numpy(bench.rows.inputs.copy())
    expected = _logits(decoder, tokens)
    yield from _both_ways(bench, "Llama", whole.run.model, tokens, expected)
    granite = whole.run.path / "granite"
    try:
        _write(bench, granite, state, form="granite")
    except ConfigError as error:
        yield not_applicable("export: Granite", f"{error.problems[0].what.rstrip('.')}")
        return
    yield from _both_ways(bench, "Granite", granite, tokens, expected)


def _both_ways(bench: PretrainWorkbench, name: str, directory: Path, tokens: Tensor, expected: Tensor) -> Iterator[Row]:
    from transformers import AutoModelForCausalLM

    with quiet_transformers():
        written = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    written.eval()
    with torch.no_grad():
        logits = written(input_ids=tokens).logits
    kind = type(written).__name__
    yield within(f"export: logits of {kind} = the decoder's", distance([logits], [expected]), bound=BOUND)
    model = bench.model(with_model(bench.config, source=str(directory)))
    again = model.build(bench.vocab_size)
    model.initialize(again, seed=0, vocab_size=bench.vocab_size)
    factors = folded_factors(model.shape(bench.vocab_size), model.table(bench.vocab_size).multipliers).values()
    exact = all(math.frexp(factor)[0] == 0.5 for factor in factors)
    yield within(
        f"export: and back from {name}: logits",
        distance([_logits(again, tokens)], [expected]),
        bound=0.0 if exact else BACK_BOUND,
    )


def _write(bench: PretrainWorkbench, directory: Path, state: dict[str, Tensor], *, form: Form) -> None:
    write_hf(
        directory,
        model=bench.model(),
        vocab_size=bench.vocab_size,
        state=state,
        tokenizer=bench.tokenizer,
        form=form,
    )


def _logits(decoder: nn.Module, tokens: Tensor) -> Tensor:
    decoder.eval()
    with torch.no_grad():
        logits: Tensor = decoder(tokens)
    return logits
