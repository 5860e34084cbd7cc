"""Pages: one file each, offline, readable without scripts and interactive with them."""
