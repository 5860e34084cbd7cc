"""What the commands print of recordings that are the same everywhere, kept in files."""
