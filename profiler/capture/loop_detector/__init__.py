"""Which of a program's loaders trains, and where its steps begin and end: `LoopDetector.feed(what happened, …)`.

Pure: no torch, no clock, no threads. The hooks say what happened, in order, as a method of the detector with its
arguments; `feed` returns what is to be done, as calls of the recorder, and `hooks/loop.py` makes these. Times are the
host's monotonic clock in nanoseconds.
"""
