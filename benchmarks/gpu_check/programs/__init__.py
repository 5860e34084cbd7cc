"""Trainings that checks have run under `whyidle`, as programs of their own."""
