"""Public datasets: fetched with checksums, read without running anything that is in them."""
