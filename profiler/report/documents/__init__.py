"""What each kind of result says: one document each."""
