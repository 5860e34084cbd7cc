"""The planted faults given to other tools as well: who names what, who alarms on healthy runs, what each costs."""
