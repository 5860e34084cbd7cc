"""What a run folder is: `run.json` beside append-only files of fixed-size binary records."""
