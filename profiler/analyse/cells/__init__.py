"""Trainings side by side: a table of them, and what those that differ in one thing tell of it."""
