"""What the word `operation` selects, a file each, and how a run directory is opened. May import everything below."""
