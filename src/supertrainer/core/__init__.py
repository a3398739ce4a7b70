"""Errors, logging, seeds, processes, files, the run directory and its lock. Imports nothing of the project."""
