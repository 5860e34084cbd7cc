"""What all tests have in common. Tiers: `make test` runs every test but those marked slow, `make test-all` these too.

In both they run side by side, on machines that others use as well, and none is tried twice. So a test judges what
happened, never how long it took.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is. `--hypothesis-profile thorough` tries many more of them.
for name, examples in (("quick", 25), ("thorough", 200)):
    settings.register_profile(name, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")

# Importing torch and 4000 tests makes little garbage and much to look through for it (pytest_collection_finish).
gc.disable()

# Threads of torch that have nothing to do wait without turning: side by side, they take the CPUs from those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Tests start Python by the hundred: what is compiled once is kept, even where the environment says otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-golden", action="store_true", help="of tests/golden: keep what the commands print now, test nothing"
    )


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    # What is frozen at the interpreter's end some libraries take for leaks, and print it.
    gc.unfreeze()


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """Ctrl-C as in a terminal: it is ignored by what was started in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own, in which torch's compiler has not been at work: transforms are timed."""
    if compiler := sys.modules.get("torch._dynamo.convert_frame"):
        monkeypatch.setattr(compiler, "FRAME_COUNTER", 0)
