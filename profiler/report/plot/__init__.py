"""Pictures made with matplotlib, an extra."""
