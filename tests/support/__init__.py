"""What tests have in common: recordings and trainings to test with, clocks, processes, terminals, stand-ins."""
