"""Whether the tests notice when what is said of a recording changes: `python -m tests.mutations`."""
