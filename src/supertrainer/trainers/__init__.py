"""Training: one loop for every fine-tuning task, its exact loss, its callbacks and trackers.

    schema       the config classes; steps, accumulation and what a schedule depends on      no torch
    base, bert   a task's trainer class        hf           the one subclass of transformers.Trainer
    arguments    training_kwargs -> arguments  losses       sums over the whole optimizer step
    cadence, metrics_log, checkpointing, stopping           callbacks, one subject each
    trackers     where curves go               throughput   tokens per second, MFU, peak memory

May import export, inference, models, data, metrics, checkpoint, config and core.
"""
