"""The pretraining that is verified: the user's own, in a few short steps, with a small decoder for a large one."""

from __future__ import annotations

from typing import Any

from supertrainer.config.spine import Config
from supertrainer.models.decoder_schema import DecoderModelConfig
from supertrainer.operations.verification.reduction import revised
from supertrainer.trainers.schema import NoTrackerConfig

BATCH = 8  # rows of a step: whole, in micro-batches, over one, two and four processes
SEQUENCE = 64  # tokens of a row at most
STEPS = 6
LARGEST = 5_000_000  # parameters beside the vocabulary; a larger decoder takes minutes, or more memory than there is
LAYERS, WIDTH = 2, 128  # of the small one at most
_OTHERS = 4  # rows of an evaluation, tokens of a sample
_MOST_HEADS = 32
_NO_TRACKER = NoTrackerConfig(target="supertrainer.trainers.trackers.NoTracker")


def reduced(config: Config) -> Config:
    """The config in six steps of eight rows, in float32, with the optimizer that it has and a schedule of its kind."""
    trainer = config.trainer
    schedule = trainer.schedule.model_dump() | {"warmup_steps": min(trainer.schedule.warmup_steps, 2)}
    if schedule["decay_steps"] is not None:
        schedule["decay_steps"] = min(schedule["decay_steps"], 2)
    node = revised(
        trainer,
        global_batch_size=BATCH,
        micro_batch_size=None,
        sequence_length=min(trainer.sequence_length, SEQUENCE),
        max_steps=STEPS,
        schedule=schedule,
        precision="float32",
        parallel={},
        activation_checkpointing="none",
        compile=False,
        log_every=1,
        save_every=1,
        eval_every=min(trainer.eval_every, STEPS // 2),
        eval_rows=min(trainer.eval_rows, _OTHERS),
        keep_last=STEPS,
        sample_prompts=list(trainer.sample_prompts[:1]),
        sample_tokens=min(trainer.sample_tokens, _OTHERS),
    )
    streams = config.dataset.num_streams
    dataset = config.dataset if streams is None or BATCH % streams == 0 else revised(config.dataset, num_streams=None)
    run = config.run.model_copy(update={"deterministic": True})
    model = small(config.model) if is_large(config.model) else config.model
    return config.model_copy(
        update={"run": run, "dataset": dataset, "trainer": node, "model": model, "tracker": _NO_TRACKER}
    )


def is_large(model: DecoderModelConfig) -> bool:
    """Whether a small decoder stands for this one."""
    return model.shape(vocab_size=1).parameters(embeddings=False) > LARGEST


def small(model: DecoderModelConfig) -> DecoderModelConfig:
    """A decoder of the same kind: as many queries a key, norms, positions, tied or not, and half as wide a base.

    Weights of a source don't fit it, so it begins with drawn ones.
    """
    shape, base = model.shape(vocab_size=1), model.base_shape(vocab_size=1)
    shared = shape.num_heads // shape.num_kv_heads
    heads, keys = (4, 4 // shared) if shared in (1, 2) else (min(shared, _MOST_HEADS), 1)
    width = WIDTH - WIDTH % (4 * heads)  # so that half of it has heads of an even size too
    ratio = shape.head_dim * shape.num_heads / shape.hidden_size
    layers = min(shape.num_layers, LAYERS)
    parametrization = model.parametrization.model_dump()
    if base is not None:
        parametrization["base"] = {
            "hidden_size": width if base.hidden_size == shape.hidden_size else width // 2,
            "num_layers": None if base.num_layers == shape.num_layers else 1,
            "num_heads": heads,
            "num_kv_heads": keys,
        }
        if model.parametrization.depth_alpha is not None and base.num_layers == shape.num_layers:
            parametrization["base"]["num_layers"] = layers
    return revised(
        model,
        num_layers=layers,
        hidden_size=width,
        num_heads=heads,
        num_kv_heads=keys,
        head_dim=None if ratio == 1 else _even(width * ratio / heads),
        ffn_size=None if model.ffn_size is None else max(1, round(model.ffn_size * width / shape.hidden_size)),
        source=None,
        parametrization=parametrization,
    )


def at_constant_rate(config: Config, **changed: Any) -> Config:
    """The config with the same rate in every step.

    Args:
        changed: further keys of the trainer.
    """
    schedule = {"name": "constant", "warmup_steps": 0}
    return config.model_copy(update={"trainer": revised(config.trainer, schedule=schedule, **changed)})


def plain(config: Config, *, steps: int) -> Config:
    """The config with steps that are nearly the gradient itself: AdamW with an eps far above it.

    With its own eps it divides a gradient by its size, and would make large steps of the rounding of tiny ones.
    """
    clipped = min(config.trainer.max_grad_norm or 1.0, 1.0)
    return at_constant_rate(
        config, max_steps=steps, learning_rate=1.0, eps=1.0, weight_decay=0.0, max_grad_norm=clipped, sample_prompts=[]
    )


def with_model(config: Config, **changed: Any) -> Config:
    """The config with another decoder.

    Args:
        changed: keys of the model.
    """
    return config.model_copy(update={"model": revised(config.model, **changed)})


def with_drawn_head(config: Config) -> Config:
    """The config with a head that starts like any other weight."""
    chosen = config.model.parametrization.model_dump() | {"zero_head": False}
    return with_model(config, parametrization=chosen)


def with_trainer(config: Config, **changed: Any) -> Config:
    """The config with other keys of the trainer."""
    return config.model_copy(update={"trainer": revised(config.trainer, **changed)})


def _even(value: float) -> int:
    return max(2, 2 * round(value / 2))
