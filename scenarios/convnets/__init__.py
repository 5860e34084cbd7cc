"""The convnets study: what batch size and devices bring to well-known nets."""
