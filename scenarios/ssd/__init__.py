"""The SSD study: detection in photographs, with a net, a loss and an optimizer of its own."""
