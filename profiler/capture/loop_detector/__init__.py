"""Which of a program's loaders trains, and where its steps begin and end: `LoopDetector.feed(event) -> actions`.

Pure: no torch, no clock, no session, no threads. The hooks make the events, `hooks/loop.py` carries out the actions.
"""
