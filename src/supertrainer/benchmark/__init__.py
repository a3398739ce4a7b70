"""How good a model is: benchmarks on labelled splits, baselines, plots, the report. May import all but operations."""
