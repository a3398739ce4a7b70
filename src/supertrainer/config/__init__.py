"""Composing, checking, freezing and replaying a config. No torch. May import core."""
