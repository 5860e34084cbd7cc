"""Calls at random of what the hooks stand around, from programs that do anything anywhere: `fuzz_hooks.py FOLDER SEED
CALLS`.

Data sets, models, optimizers, signal handlers and callbacks raise, nest, enter again, and delete and replace what
is in use. Whatever the hooks are made of: a program's calls give what they give without them, only its own errors are
raised, and nothing is kept. Prints a line of JSON.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import shutil
import signal
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import whyidle
from whyidle.capture import active
from whyidle.capture.hooks.install import Hooks
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.record.schema import STEP

OURS = str(Path(whyidle.__file__).parent)
SIZE = 40


class Planned(Exception):
    pass


class Interrupt(BaseException):
    pass


class Numbers(Dataset[Any]):
    def __init__(self, fuzz: Fuzz) -> None:
        self.fuzz = fuzz

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        self.fuzz.mischief()
        return torch.full((3,), float(index))


class Fuzz:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.recordings = self.depth = self.batches = self.raised = self.tampering = 0
        self.wrong: list[str] = []
        self.mood = 0.0
        """How often something happens where something may."""
        self.hooks: Hooks | None = None
        self.model: Any = None
        self.loaders: list[DataLoader[Any]] = []
        self.passes: list[tuple[Any, list[int]]] = []
        self.last: Any = None
        self.renew()

    def renew(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.model.register_forward_pre_hook(lambda *_: self.mischief())
        next(self.model.parameters()).register_hook(lambda _grad: self.mischief())
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.optimizer.register_step_pre_hook(lambda *_: self.mischief())
        self.loaders = [DataLoader(Numbers(self), batch_size=4, collate_fn=self.collate) for _ in range(3)]
        self.passes = []

    def collate(self, samples: list[torch.Tensor]) -> Any:
        self.mischief()
        self.last = [torch.stack(samples)] + samples * self.chance.choice((0, 0, 1, 3))
        return self.last

    # Hooks in and out, as a recording that begins and ends does.

    def record(self) -> None:
        active.end()
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "run").mkdir(parents=True)
        begun = active.begin(self.folder / "run")
        self.recordings += 1
        self.hooks = begun.hooks
        steps, between = begun.session.steps, begun.session.steps.on_step

        def on_step(number: int, now: int) -> bool:
            took = between is not None and between(number, now)
            steps.due_ns = 0
            if self.tampering:
                self.tamper(begun)
            self.mischief(errors=False)
            return bool(took)

        steps.on_step, steps.due_ns = on_step, 0

    def tamper(self, begun: Any) -> None:
        """Replaces what our own objects hold, where nothing that a program calls reaches them."""
        loading: Any = begun.hooks._hooks[0]
        known, steady, what = loading._last, loading._loop.steady, self.chance.randrange(5)
        if what == 0 and known is not None:
            known.iteration = Iteration(Role(), 0)
        elif what == 1 and steady is not None:
            steady.follow(None)
        elif what == 2:
            begun.session.steps._row = array("q", bytes(8 * (len(STEP.fields) - 1)))
        elif what == 3 and known is not None:
            known.lengths = type(known.lengths)(known.lengths, maxlen=1000)
        elif known is not None and known.iteration is not None:
            known.iteration.queue, known.iteration.epoch = None, self.chance.randrange(1 << 40)
        gc.collect(0)

    # What may happen anywhere.

    def mischief(self, errors: bool = True) -> None:
        if self.depth > 4 or self.chance.random() > self.mood:
            return
        self.depth += 1
        try:
            what = self.chance.randrange(13)
            if what == 0 and errors:
                self.raised += 1
                raise Planned
            if what == 1:
                self.raised += 1
                raise Interrupt
            if what == 2:
                signal.raise_signal(signal.SIGUSR1)
            elif what == 3:
                gc.collect(self.chance.randrange(2))
            elif what == 4:
                gc.set_threshold(self.chance.choice((1, 5, 50, 700)))
            elif what == 5 and isinstance(self.last, list):
                self.last.clear()
            elif what == 6 and self.passes:
                del self.passes[self.chance.randrange(len(self.passes))]
            elif what == 7:
                self.loaders[self.chance.randrange(3)] = DataLoader(Numbers(self), batch_size=4)
            elif what == 8:
                self.guarded(self.in_a_thread)
            else:
                self.guarded(self.chance.choice((self.fetch, self.begin, self.learn, self.step)))
        finally:
            self.depth -= 1

    def on_signal(self, *_: Any) -> None:
        self.mischief()

    # What a program calls.

    def begin(self) -> None:
        self.passes.append((iter(self.chance.choice(self.loaders)), []))
        del self.passes[:-6]

    def fetch(self) -> None:
        if not self.passes:
            return
        batches, seen = self.chance.choice(self.passes)
        try:
            batch = next(batches)
        except StopIteration:
            self.passes = [each for each in self.passes if each[0] is not batches]
            return
        self.batches += 1
        if not batch:
            return  # it was emptied
        got = [int(each) for each in batch[0][:, 0]]
        # One that was asked for within another comes before it.
        if got != list(range(got[0], got[0] + 4)) or got[0] in seen:
            self.wrong.append(f"{got} after {seen}")
        seen.append(got[0])

    def learn(self) -> None:
        loss = self.model(torch.ones(2, 3)).sum()
        before = self.model.bias.grad
        before = 0.0 if before is None else before.item()
        torch.autograd.backward(loss)
        if self.depth == 0 and self.mood == 0 and self.model.bias.grad.item() != before + 2:
            self.wrong.append("a gradient")

    def step(self) -> None:
        self.optimizer.step()
        if self.chance.random() < 0.5:
            self.optimizer.zero_grad()

    def train(self) -> None:
        """Undisturbed steps, which are the hooks' common case."""
        mood, self.mood = self.mood, self.chance.choice((0.0, 0.002, 0.02))
        try:
            for batch in self.chance.choice(self.loaders):
                self.batches += 1
                if batch:
                    self.model(batch[0]).sum().backward()
                    self.optimizer.step()
                self.optimizer.zero_grad()
        finally:
            self.mood = mood

    def in_a_thread(self) -> None:
        thread = threading.Thread(target=self.guarded, args=(self.fetch,))
        thread.start()
        thread.join()

    def guarded(self, call: Any) -> None:
        try:
            call()
        except (Planned, Interrupt):
            pass
        except Exception as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = "" if trace is None else trace.tb_frame.f_code.co_filename
            # What torch says of a program that enters it again is torch's.
            if isinstance(error, SystemError) or where.startswith(OURS):
                self.wrong.append(f"{type(error).__name__}: {error} in {where}")

    def play(self, calls: int) -> dict[str, Any]:
        signal.signal(signal.SIGUSR1, self.on_signal)
        gc.callbacks.append(lambda _phase, _info: None)
        sizes: list[int] = []
        sys.unraisablehook = lambda told: self.unraisable(told)
        for number in range(calls):
            if number % 500 == 0:
                self.mood, self.tampering = 0.0, 0
                self.renew()
                self.record()
            self.mood = self.chance.choice((0.0, 0.02, 0.1, 0.4))
            self.tampering = self.chance.random() < 0.1
            self.guarded(self.chance.choice((self.fetch, self.fetch, self.begin, self.learn, self.step, self.train)))
            if number % (calls // 10) == calls // 10 - 1:
                gc.collect()
                sizes.append(kept())
        active.end()
        return {
            "calls": calls,
            "batches": self.batches,
            "raised": self.raised,
            "recordings": self.recordings,
            "wrong": self.wrong[:10],
            "kept": sizes,
        }

    def unraisable(self, told: Any) -> None:
        """Errors of the program's in what Python calls at odd moments are not raised; ours run no such code."""
        if told.object is not None and OURS in repr(getattr(told.object, "__code__", "")):
            self.wrong.append(f"swallowed {told.exc_value!r} in {told.object!r}")


def kept() -> int:
    """References, where this Python counts them; else KiB of memory."""
    count = getattr(sys, "gettotalrefcount", None)
    if count is not None:
        return int(count())
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return resident * resource.getpagesize() // 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(Fuzz(Path(sys.argv[1]), int(sys.argv[2])).play(int(sys.argv[3]))))
