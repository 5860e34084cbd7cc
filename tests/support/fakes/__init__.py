"""Stand-ins for drivers."""
