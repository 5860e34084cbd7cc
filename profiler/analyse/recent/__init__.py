"""What a run does now, or did at some moment: what the live view shows."""
