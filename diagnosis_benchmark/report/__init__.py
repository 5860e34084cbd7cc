"""What the benchmark of diagnosis came to, in words, as JSON, as a page and as a picture."""
