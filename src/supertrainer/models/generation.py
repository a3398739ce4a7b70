"""How a language model generates where nobody says: what its source noted, and that it can be written down again."""

from __future__ import annotations

import logging
from pathlib import Path

from torch import nn
from transformers import GenerationConfig, PreTrainedModel

log = logging.getLogger(__name__)

GENERATION_FILE = "generation_config.json"


def make_writable(module: nn.Module) -> None:
    """Mends what transformers reads but refuses to write: sampling options where sampling is off.

    Without this a model could be trained for days and not be saved.
    """
    model = _unwrapped(module)
    noted = model.generation_config
    if noted is None:
        return
    try:
        noted.validate(strict=True)
    except ValueError as error:
        log.info("%s: do_sample=true is set, as its sampling options mean it", str(error).splitlines()[0])
        noted.do_sample = True


def begin_answers(module: nn.Module) -> None:
    """Notes that a decoder beside an encoder writes behind the token that begins a text, as it is trained to."""
    model = _unwrapped(module)
    text = model.config.get_text_config()
    if model.config.is_encoder_decoder and model.generation_config is not None:
        model.generation_config.decoder_start_token_id = text.decoder_start_token_id
        model.generation_config.forced_bos_token_id = text.bos_token_id


def write_generation(model: PreTrainedModel, directory: Path) -> None:
    """Writes generation_config.json beside an adapter, where its model generates."""
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(directory)


def read_generation(model: PreTrainedModel, directory: Path) -> None:
    """Takes what stands beside an adapter in the place of what its base says."""
    if (directory / GENERATION_FILE).is_file():
        model.generation_config = GenerationConfig.from_pretrained(directory)


def _unwrapped(module: nn.Module) -> PreTrainedModel:
    """The transformers model, inside an adapter's wrapper or not."""
    from peft import PeftModel

    model: PreTrainedModel = module.get_base_model() if isinstance(module, PeftModel) else module  # type: ignore[assignment]
    return model
