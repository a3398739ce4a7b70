"""The other sides of the benchmark of language models: a plain `transformers.Trainer`, and TRL's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from chats import BATCH, LAYERS, LORA, MICRO, PACK, RECIPE, SEED, learnt, material, mean_length, peak, resident


def others(way: str, *, directory: Path, rows: int, order: list[int] | None) -> dict[str, Any]:
    """One epoch with a plain `transformers.Trainer`, or with TRL's.

    Args:
        order: the rows in the order in which they are to be taken; None for the Trainer's own.
    """
    from clock import Clock
    from peft import LoraConfig, get_peft_model
    from transformers import DataCollatorForSeq2Seq, PrinterCallback, Trainer, TrainingArguments

    model, dataset = material(directory, rows=rows)
    tokenizer = model.tokenizer()
    encoded = dataset.encode(dataset.load()["train"], tokenizer).select_columns(["input_ids", "labels"])
    encoded = encoded if order is None else encoded.select(order)
    before = resident()
    base, clock = model.build(seed=SEED), Clock()
    common: dict[str, Any] = {
        "output_dir": str(directory / "other"),
        "use_cpu": not torch.accelerator.is_available(),
        "per_device_train_batch_size": MICRO,
        "gradient_accumulation_steps": BATCH // MICRO,
        "seed": SEED,
        "report_to": "none",
        **RECIPE,
    }
    lora = LoraConfig(task_type="CAUSAL_LM", target_modules=LAYERS, **LORA)
    if way == "in order":  # equal steps want equal adapters to begin with
        base = model.build(seed=SEED, peft_kwargs={**LORA, "target_modules": "auto"})
    if way.startswith("trl"):
        from trl import SFTConfig, SFTTrainer

        more = {
            "trl": {"max_length": PACK},
            "trl packed": {"packing": True, "max_length": PACK},
            "trl padding-free": {"padding_free": True, "max_length": None},
        }[way]
        if way == "trl packed":
            packs = max(round(BATCH * mean_length(model, dataset) / PACK), 1)
            common |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": packs}
        trainer: Any = SFTTrainer(
            model=base,
            args=SFTConfig(bf16=False, **more, **common),
            train_dataset=encoded,
            processing_class=tokenizer,
            peft_config=lora,
            callbacks=[clock],
        )
    else:
        strategy = {"plain": "random", "grouped": "group_by_length", "in order": "sequential"}[way]
        trainer = Trainer(
            model=base if way == "in order" else get_peft_model(base, lora),
            args=TrainingArguments(train_sampling_strategy=strategy, **common),
            train_dataset=encoded,
            data_collator=DataCollatorForSeq2Seq(tokenizer),
            callbacks=[clock],
        )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    seconds = clock.seconds
    return {"seconds": seconds, "losses": losses, "tokens": learnt(dataset, model), "memory": peak() - before}
