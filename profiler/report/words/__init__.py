"""Phrases that several documents use."""
