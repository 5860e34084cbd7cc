"""Observing a process that already runs, from outside: nothing here writes to it, stops it, or runs inside it."""
