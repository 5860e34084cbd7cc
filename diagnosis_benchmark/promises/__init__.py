"""Promises held against what came: the first advice of a report is followed, and the gain measured."""
