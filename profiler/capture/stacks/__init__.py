"""Python stacks of other processes, read from outside while they run: nothing is stopped, written or run inside them.

- `reader` is what others use: `RemotePython(pid).look()`.
- `memory` reads another process's memory; `symbols` finds where CPython's variables lie in it.
- `layouts` has where CPython 3.11 to 3.14 keep what in their structures.
- `code` turns a code object and an instruction of it into file, function and line; `frames` walks a thread's frames.
- `thread_state` tells what a thread does besides: on a CPU, or waiting, and for what.
"""
