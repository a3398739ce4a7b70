"""Starting runs: sweeps and the processes or jobs that they become. No torch. May import config and core."""
