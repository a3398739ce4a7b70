"""What of PEFT's LoRA variants is trained here, and why the others aren't. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import Problem

INIT = "init_lora_weights"  # PEFT's name for how an adapter begins
INITS = (True, False, "gaussian", "orthogonal", "olora", "pissa", "pissa_niter_16")
_PISSA_NITER = re.compile(r"pissa_niter_\d+")
_FROM_DATA = (
    "it is computed from batches of the training data before training, and a run that resumes would need them again."
)
_REFUSED_INITS: Mapping[str, str] = {
    "eva": _FROM_DATA,
    "corda": _FROM_DATA,
    "lora_ga": _FROM_DATA,
    "loftq": "PEFT's holds the frozen weights in full width while it stands for quantized ones, so it saves no memory; "
    "pissa or olora with trainer.bitsandbytes_kwargs serve the same end.",
    "mica": "half of the adapter is frozen by it, and nothing here has shown that it is read back right.",
}


def begins_in_base(peft_kwargs: Mapping[str, Any]) -> bool:
    """Whether the adapter begins with a part of the frozen weights, which is taken out of them: PiSSA and OLoRA."""
    init = peft_kwargs.get(INIT)
    return isinstance(init, str) and (init == "olora" or init.startswith("pissa"))


def method_name(peft_kwargs: Mapping[str, Any] | None, *, quantized: bool) -> str:
    """How a model is fine-tuned: full, lora, dora, rslora, pissa, olora; qlora, … over quantized weights."""
    if peft_kwargs is None:
        return "full"
    init = peft_kwargs.get(INIT)
    name = "dora" if peft_kwargs.get("use_dora") else "rslora" if peft_kwargs.get("use_rslora") else "lora"
    if begins_in_base(peft_kwargs):
        name = str(init).split("_")[0] + ("" if name == "lora" else f"+{name}")
    return f"q{name}" if quantized else name


def method_problems(
    peft_kwargs: Mapping[str, Any], *, bitsandbytes_kwargs: Mapping[str, Any] | None
) -> Iterable[Problem]:
    """What of these options isn't trained here."""
    init = peft_kwargs.get(INIT, True)
    place = f"trainer.peft_kwargs.{INIT}={init}"
    if init in _REFUSED_INITS:
        yield Problem(
            f"{place}: isn't trained here.", why=_REFUSED_INITS[str(init)], fix=f"{INIT}=true, pissa or olora."
        )
    elif init not in INITS and not (isinstance(init, str) and _PISSA_NITER.fullmatch(init)):
        known = [choice for choice in INITS if isinstance(choice, str)]
        yield Problem(f"{place}: is no way that an adapter begins.", fix=did_you_mean(str(init), known))
    eight_bits = bool((bitsandbytes_kwargs or {}).get("load_in_8bit"))
    if eight_bits and peft_kwargs.get("use_dora"):
        yield Problem(
            "trainer.peft_kwargs.use_dora=true with trainer.bitsandbytes_kwargs.load_in_8bit=true.",
            why="DoRA begins with the lengths of the weights' rows, and PEFT can't read them out of 8 bits.",
            fix="trainer/common/bitsandbytes_kwargs@trainer.bitsandbytes_kwargs=nf4, or use_dora=false.",
        )
    if init == "orthogonal" and bitsandbytes_kwargs is not None:
        yield Problem(
            f"{place} with trainer.bitsandbytes_kwargs.",
            why="PEFT writes such a start in the format of the weights below it, which holds whole numbers only.",
            fix=f"{INIT}=true, pissa or olora.",
        )
    if peft_kwargs.get("lora_bias") and begins_in_base(peft_kwargs):
        yield Problem(
            f"trainer.peft_kwargs.lora_bias=true with {INIT}={init}.",
            why="what is saved has another shape than what is trained, and a bias has no place in it.",
            fix="lora_bias=false.",
        )
