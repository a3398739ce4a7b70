"""Where trained models run: one adapter a file, imported only when a config names it."""
