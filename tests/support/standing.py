"""A program that stands still at a place of the kind asked for, and says which: run by any Python from 3.11 on.

It prints one line of JSON: the process's and the thread's kernel ids and the thread's frames, outermost first, as the
interpreter itself has them. The line that is printed from is the line it then stands at.
"""

import json
import os
import sys
import threading
import time

FOREVER = 1e6


def say():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        frames.append([frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno])
        frame = frame.f_back
    told = {"pid": os.getpid(), "tid": threading.get_native_id(), "frames": frames[:256][::-1]}
    print(json.dumps(told), flush=True)


def in_sleep():
    say(), time.sleep(FOREVER)


def in_a_thread():
    thread = threading.Thread(target=in_sleep)
    thread.start()
    thread.join()


class Callable:
    def __call__(self, number):
        def numbers():
            yield 1
            yield max([self.method(key) for key in (number,)])

        return sum(numbers())

    def method(self, _):
        sorted([1, 2], key=lambda number: (say(), time.sleep(FOREVER)))


def in_functions_of_all_kinds():
    list(map(Callable(), [1, 2]))


def in_made_code():
    made = "def made(say):\n    number = 1\n\n\n    say(), time.sleep(\n        1e6\n    )\n\nmade(say)\n"
    exec(compile(made, "<made é ā 𝒳>", "exec"), {"say": say, "time": time})


def recursion(depth):
    if depth:
        return recursion(depth - 1)
    return say(), time.sleep(FOREVER)


def in_recursion():
    recursion(900)


globals()[sys.argv[1]]()
