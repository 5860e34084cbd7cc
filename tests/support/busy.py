"""A program of short functions that call each other without end: its stack changes while it is read.

It prints its process's id. Run by any Python from 3.11 on.
"""

import os


def leaf(number):
    doubled = number + 1
    return doubled * 2


def listing(number):
    return [
        value * 2
        for value in (number, number, number)
    ]  # fmt: skip


def generating(number):
    yield leaf(number)
    yield from listing(number)


def calls(number):
    total = leaf(number)
    total += leaf(total)
    return total


def collects(number):
    return sum(value for value in listing(number)) + sum(generating(number))


def top():
    total = eval("lambda: leaf(1)", {"leaf": leaf})()
    for number in range(50):
        total += calls(number)
        total -= collects(number)
    return total


print(os.getpid(), flush=True)
while True:
    top()
