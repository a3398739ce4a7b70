"""How the model continues a few fixed texts as it is trained, for samples.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from supertrainer.trainers.pretraining.layout import Layout


def continuations(
    decoder: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    layout: Layout,
    max_new_tokens: int,
    max_length: int,
    temperature: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Continues the prompts, one after the other. Where weights are divided, every process calls it.

    All positions are computed anew for each token: a few short texts don't pay for a cache in the trained model.

    Args:
        decoder: what is trained.
        tokenizer: of the data.
        prompts: texts.
        layout: of the processes.
        max_new_tokens: of each.
        max_length: positions of the model.
        temperature: 0 takes the likeliest token.
        seed: of the draws; no other generator is touched.

    Returns:
        Rows with `row`, `prompt`, `generated` and `finish` ("stop" at the end of a document, else "length").
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    with layout.looking(decoder):
        for number, prompt in enumerate(prompts):
            ids = _prompt_ids(tokenizer, prompt)[-max_length + 1 :]
            width = min(len(ids) + max_new_tokens, max_length)
            tokens = torch.zeros(1, width, dtype=torch.int64, device=layout.device)  # what is to come isn't seen
            tokens[0, : len(ids)] = torch.tensor(ids)
            length, finish = len(ids), "length"
            while length < width and finish == "length":
                logits = decoder(tokens)[0, length - 1, : len(tokenizer)].float()
                token = _choose(logits, temperature, generator)
                if token == tokenizer.eos_token_id:
                    finish = "stop"
                else:
                    tokens[0, length] = token
                    length += 1
            text = tokenizer.decode(tokens[0, len(ids) : length].tolist())
            rows.append({"row": number, "prompt": prompt, "generated": text, "finish": finish})
    return rows


def _prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """A document that begins with the prompt, as the stream would encode it."""
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    begins = tokenizer.bos_token_id is not None and tokenizer.bos_token_id != tokenizer.eos_token_id
    return [tokenizer.bos_token_id, *ids] if begins else ids or [tokenizer.eos_token_id]


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits.cpu() / temperature).softmax(-1), 1, generator=generator))
