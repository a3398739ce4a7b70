"""Rows: where they come from, what is wrong with them, how they are split, encoded and batched.

May import config and core. From a source to tensors:

    schema, locate           the config classes, the files of each split (no torch)
    readers, tables, hub     a file or a Hub id -> raw columns
    sources, rows            raw columns -> rows of the declared columns
    findings, validation     the checks, and what is wrong told at once
    splitting, report        made splits and limits; what became of the rows
    base, bert, llm, mllm    the dataset class of a task: all of the above; conversations: what llm and mllm share
    tokenization, collation  rows -> token ids -> padded tensors
    batching                 the rows of every optimizer step, process and micro-batch
    tokenizer                a tokenizer that is trained on a corpus
    images, vision           one picture; rows with pictures for vision-language models (mllm)
    prepare                  other layouts -> files that the readers take (scripts/prepare_dataset.py)
"""
