"""Errors, logging, seeds, distributed helpers, files, the run directory and its lock. Imports nothing of the project."""
