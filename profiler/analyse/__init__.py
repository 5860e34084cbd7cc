"""Pure functions from a recorded run to frozen results. No torch, no printing, no live process."""
