"""Layouts of an analysis: text, JSON, live view. They compute nothing."""
