"""What a training step runs on: one protocol; CUDA, the processor, and emulated accelerators behind it."""
