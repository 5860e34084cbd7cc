"""The Fashion-MNIST study: what augmentation costs."""
