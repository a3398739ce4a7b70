"""Training: one loop for every fine-tuning task, its exact loss, its callbacks and trackers.

    schema                   the config classes; steps, accumulation, what a schedule depends on     no torch
    kwargs, ranges           which keys and numbers of third-party classes may be set                no torch
    base, bert               a task's trainer class          results      what a call of `train` came to
    arguments                training_kwargs -> arguments    losses       sums over the whole optimizer step
    hf                       the one subclass of transformers.Trainer
    session                  one call of `train`, put together from these callbacks:
    cadence, metrics_log, checkpointing, stopping, progress
    trackers, throughput     where curves go; tokens per second, MFU, peak memory

May import export, inference, models, data, metrics, checkpoint, config and core.
"""
