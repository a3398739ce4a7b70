"""The parts of the pretraining loop: schedule, layout over processes, update, guard, checkpoints, evaluation, log.

May import what trainers may import, but not the Hugging Face Trainer: importing it takes longer than a small run.
"""
