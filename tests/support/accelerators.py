"""The accelerators and nets that profiles are known of."""

from __future__ import annotations

ACCELERATORS = ["a100", "gtx1080", "h100", "h200", "k520", "k80", "p100", "titanx", "v100"]
NETS = ["ssd300", "ssd512", "vgg16"]
FASHION = [f"fashion-{net}" for net in ("cnn1", "cnn2", "cnn3", "cnn4", "cnn5", "mlp")]
SCALED = ["alexnet", "googlenet", "inception_v3", "resnet50"]
BENCHMARKS = ["alexnet-forward", "alexnet-forward-backward"]
PRICED = ["cifar10-cnn", "mnist-cnn", "mnist-mlp"]
"""So small that launches and the host set their epochs, not arithmetic."""
