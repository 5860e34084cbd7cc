"""Where Python threads stand, and what they wait for, seen from outside while they run.

- `spy` runs py-spy at a process, tells when it looked and reads what it wrote in the end.
- `thread_state` tells what a thread does besides: on a CPU, or waiting, and for what.
- `source` has the lines and the full names of functions, as the process sees its files.
- `permit` lets the sampler look where the system lets processes look into their children alone.
- `within` looks from a thread of the process itself where the system lets nobody.
"""
