"""A stretch of a run as trace events, which Perfetto and chrome://tracing show as tracks."""
