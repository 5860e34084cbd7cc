"""Trainings started as child processes: single trials, and rounds of them that are interleaved."""
