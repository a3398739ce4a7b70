"""Trains, infers and benchmarks BERT, LLM and vision-language models, and pretrains language models under μP.

Imports run one way: main > operations > benchmark > trainers > export > inference > models | data | metrics |
checkpoint | launch > config > core. Nothing happens at import.
"""

__version__ = "0.1.0"
