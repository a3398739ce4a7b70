"""Trained models at work: an engine makes logits of encoded rows, an inferencer turns a file into predictions.

    schema      the config classes, no torch     reading, writing   rows of a file in, rows with predictions out
    logits      the one loop over batches        engines            where models run
    base, bert  a task's inferencer

May import models, data, metrics, checkpoint, config and core.
"""
