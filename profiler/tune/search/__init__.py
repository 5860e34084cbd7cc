"""Which loader settings to try next, and what to believe of those that were tried."""
