"""Prepares data: common layouts of files -> clean, split rows in the columns that a task needs. No torch.

May import config, core and the light modules of `data` (schema, locate, splitting). From a source to files:

    command, options         the command line of scripts/prepare_dataset.py
    inputs, encoding         the files of a source with the splits that they name; text in any encoding, as a stream
    containers, tables       CSV, JSON and Parquet files -> one raw value a row
    detection, layouts       which layout the raw values have, why, and the reader and converter of each
    columns, labelled, class_files, plain_text             texts and their labels
    conll, word_lists, spans, tag_schemes                  words and their tags
    chat, preference, pictures, picture_folders            conversations, pairs, pictures
    record, shapes           a raw row, its fault; the columns of a task and what is in them
    rules, row_rules         declared cleaning
    ledger, set_rules        what is remembered of every row; rules that look at all rows (repeats, rare labels)
    dividing                 train, validation, test
    writing, report          files out; what became of every row
    pipeline                 all of the above, as a stream
"""
