"""Trainings with a planted fault of known size, healthy ones, and the truth about each."""
