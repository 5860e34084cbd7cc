"""One training process: where its time went, and what its loader, device and host did."""
