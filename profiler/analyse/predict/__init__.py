"""What a loader would do with other settings: torch's DataLoader protocol, replayed on recorded
times."""
