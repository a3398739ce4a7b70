"""What `operation=verify` is made of: each promise of exactness, held against a config's own model, data and trainer.

    reduction    the config on a few rows, in float32        workbench    trains it aside, as often as is asked
    rows         figures, bounds and verdicts: the table     processes    the same in processes of their own (worker)
    splitting, padding, resuming, reloading: the checks, each a function that yields rows

May import what operations may.
"""
