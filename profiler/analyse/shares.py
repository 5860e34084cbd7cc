"""What rules mean by "mostly" and "nearly all": the same wherever a sentence says so.

A threshold of its own, named for what it is about, has what may move alone: what is told to the reader beside a figure,
and what was calibrated with planted faults.
"""

MOSTLY = 0.5
"""Share of a whole, 0..1, from which something is most of it."""
NEARLY_ALL = 0.8
"""Share of a whole, 0..1, from which something is nearly all of it."""
