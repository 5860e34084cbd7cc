"""Observing an unchanged training loop from within its process: `install.install(session)`."""
