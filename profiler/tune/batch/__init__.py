"""How large a batch should be: what fits, what is fast, what is likely to reach a loss soonest."""
