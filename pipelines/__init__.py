"""The loaders under comparison. They know nothing of the profiler; what copies a batch is passed in."""
