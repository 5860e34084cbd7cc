"""How large a batch should be: what fits, and what is fast."""
