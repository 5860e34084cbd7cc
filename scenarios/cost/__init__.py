"""The cost study: what a training costs on CPUs and GPUs."""
