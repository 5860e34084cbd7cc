"""One training process: where its time went, and what is known of its loader, its device and its host."""
