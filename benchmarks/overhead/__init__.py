"""What observing costs a training."""
