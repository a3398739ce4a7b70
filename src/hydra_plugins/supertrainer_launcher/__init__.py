"""Hydra launchers of supertrainer. Light to import: Hydra imports every plugin at each start."""
