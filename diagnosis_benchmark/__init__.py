"""How often the diagnosis is right: trainings with planted faults, what was named, and what other tools say."""
