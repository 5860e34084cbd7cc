"""What happens inside and beside a training: the session's hooks, and the sampler process."""
