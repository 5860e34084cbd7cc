"""A program that stands still at a place of the kind asked for, and says which: run by any Python from 3.11 on.

It prints one line of JSON: the process's and the thread's kernel ids and the thread's frames, outermost first, as the
interpreter itself has them. The line that is printed from is the line it then stands at.
"""

import asyncio
import collections
import itertools
import json
import os
import sys
import threading
import time
import zlib

FOREVER = 1e6
BIG = bytes(64 << 20)


def say():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append([code.co_filename, code.co_qualname, frame.f_lineno, code.co_firstlineno])
        frame = frame.f_back
    told = {"pid": os.getpid(), "tid": threading.get_native_id(), "frames": frames[:256][::-1], "depth": len(frames)}
    print(json.dumps(told), flush=True)


def in_sleep():
    say(), time.sleep(FOREVER)


def in_a_generator():
    def numbers():
        yield 1
        yield from inner()

    def inner():
        yield 2
        say(), time.sleep(FOREVER)
        yield 3

    for number in numbers():
        print(number, file=sys.stderr)


def in_a_comprehension():
    return [
        (say(), time.sleep(FOREVER))
        for number in range(3)
        if number == 1
    ]  # fmt: skip


def in_a_generator_expression():
    return sum((say(), time.sleep(FOREVER), 1)[2] for _ in range(3))


def in_async():
    async def outer():
        await asyncio.sleep(0)
        async with Context() as context:
            await context.middle()

    class Context:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

        async def middle(self):
            say(), time.sleep(FOREVER)

    asyncio.run(outer())


def in_c_without_the_lock():
    say(), collections.deque(map(zlib.crc32, itertools.repeat(BIG)), 0)


def in_c_with_the_lock():
    say(), max(itertools.repeat(1))


def in_a_lambda():
    sorted([1, 2], key=lambda number: (say(), time.sleep(FOREVER)))


def in_a_thread():
    thread = threading.Thread(target=in_sleep, name="saver")
    thread.start()
    thread.join()


def in_made_code():
    made = "import time\ndef made(say):\n    number = 1\n\n\n    say(), time.sleep(\n        1e6\n    )\n\nmade(say)\n"
    exec(compile(made, "<made é ā 𝒳>", "exec"), {"say": say})


def recursion(depth):
    if depth:
        return recursion(depth - 1)
    return say(), time.sleep(FOREVER)


def in_recursion():
    recursion(900)


class Callable:
    def __call__(self, number):
        return max(number, key=self.method)

    def method(self, _):
        say(), time.sleep(FOREVER)


def in_methods():
    list(map(Callable(), [[1, 2]]))


def in_a_handler():
    try:
        raise ValueError
    except ValueError:
        with open(os.devnull):
            say(), time.sleep(FOREVER)


def in_a_forked_child():
    if os.fork():
        time.sleep(FOREVER)
    say(), time.sleep(FOREVER)


def in_the_main_one_of_two_interpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    interpreters.create()
    say(), time.sleep(FOREVER)


globals()[sys.argv[1]]()
