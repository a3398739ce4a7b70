"""Conversations for causal language models: rows of any layout -> token ids, and which of them are learnt.

May import config, core and the rest of `data`. From a row to token ids:

    conversation, layouts   the canonical form of a row; the layouts that it can be read from
    template                which chat template, its hash, and that it stays the same
    rendering               conversation -> text, and the prompt of a generation -> token ids
    spans                   which characters of a text are the model's answers
    encoding                texts and spans -> token ids and labels
    lengths                 rows of more than max_length tokens
    cache                   token ids of an earlier run
"""
