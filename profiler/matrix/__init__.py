"""Cells times interleaved rounds: trainings run one after another, each in a process of its own, and saved."""
