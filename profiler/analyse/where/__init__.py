"""From what a finding claims to the lines of code that stood there meanwhile."""
