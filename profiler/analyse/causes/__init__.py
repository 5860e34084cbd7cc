"""The causes: for each part of the wall time, rules from the specific to the general."""
