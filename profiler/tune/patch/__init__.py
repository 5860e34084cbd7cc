"""What a tuning found, as a change to the program's own source."""
