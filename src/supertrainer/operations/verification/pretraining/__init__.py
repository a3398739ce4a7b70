"""The same for a pretraining: its promises, held against a config's own decoder, documents, recipe and tokenizer.

    reduction      a few short steps, a small decoder for a large one     workbench    trains it aside, or a step of it
    documents      rows that are cut into more documents, and noted       apart        in two processes of gloo (worker)
    splitting, resuming, streams, isolation, recomputation, parametrization, schedules, exporting: the checks

May import what operations may.
"""
