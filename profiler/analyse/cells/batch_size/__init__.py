"""Why a larger batch got slower, or no faster: time per sample, term by term, and the mechanism behind it."""
