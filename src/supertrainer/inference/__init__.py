"""Trained models at work: an engine makes logits of encoded rows, an inferencer turns a file into predictions.

    schema     the config classes, no torch       files    rows of any file in, rows with predictions out
    logits     the one loop over batches          bert     sequence classification
    base       what every task's inferencer has   engines  where models run

May import models, data, metrics, checkpoint, config and core.
"""
