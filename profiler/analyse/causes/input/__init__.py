"""Causes of the exposed wait for data."""
