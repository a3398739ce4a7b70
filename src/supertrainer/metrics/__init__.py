"""What a prediction is worth: sums over rows, equal under any split of them. May import config and core."""
