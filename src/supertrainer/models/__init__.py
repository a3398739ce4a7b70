"""Pretrained and from-scratch models: where they come from, their heads and adapters, how they are saved and reloaded.

May import config and core.
"""
