"""What stacks that were seen from outside say: classes, stages, kinds of waits, imports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stacks import CALL, ENGINE, FETCH, IMPORTS, LIB, NEXT, TORCH, WAIT, WORKER, stack
from whyidle.analyse.attached import stacks
from whyidle.record.stacks import Call, CallStack

SAVE = f"{TORCH}/serialization.py:save"
LOADER = f"{TORCH}/utils/data/dataloader.py"
QUEUE = f"{LIB}/multiprocessing/queues.py:Queue.get"
IDLE = stack(NEXT, WORKER, QUEUE)
STEP = f"{TORCH}/optim/optimizer.py:Optimizer.profile_hook_step.<locals>.wrapper"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (WAIT, "data wait"),
        (stack(NEXT, f"{TORCH}/multiprocessing/reductions.py:rebuild_storage_fd"), "data wait"),
        (stack("/x/site-packages/tqdm/std.py:__iter__", *(f"{c.file}:{c.function}" for c in WAIT[1:])), "data wait"),
        (stack(NEXT, FETCH, "/home/me/data.py:__getitem__"), "data making"),
        (stack(NEXT, FETCH, "/home/me/data.py:__getitem__", CALL, text="x.to(torch.float)"), "data making"),
        (stack("/home/me/model.py:Net.forward", CALL, f"{TORCH}/nn/modules/linear.py:Linear.forward"), "forward"),
        (stack(CALL, "/home/me/model.py:Net.forward", text="return a + b"), "forward"),
        (stack(CALL, "/home/me/model.py:Net.forward", text="if mask.any().item():"), "sync"),
        (stack(text="total += loss.item()"), "sync"),
        (stack(text="x, y = x.to(device), y.to(device)"), "copy"),
        (stack("/x/accelerate/utils/operations.py:send_to_device"), "copy"),
        (stack(f"{TORCH}/cuda/__init__.py:synchronize"), "sync"),
        (stack(f"{TORCH}/_tensor.py:Tensor.backward", f"{TORCH}/autograd/__init__.py:backward", ENGINE), "backward"),
        (stack(STEP, f"{TORCH}/optim/adam.py:Adam.step"), "optimizer"),
        (stack(STEP, "/x/lightning/loops/optimization.py:closure", CALL), "forward"),
        (stack(SAVE, f"{TORCH}/serialization.py:_save", text="storage.cpu()"), "checkpoint"),
        (stack("/x/transformers/trainer.py:Trainer._save_checkpoint", "/x/a.py:b"), "checkpoint"),
        (stack(f"{LIB}/logging/__init__.py:Logger._log"), "logging"),
        (stack(text="print('epoch', epoch)"), "logging"),
        (stack(f"{TORCH}/distributed/distributed_c10d.py:barrier"), "ranks"),
        (stack(f"{TORCH}/_inductor/codecache.py:compile"), "compiling"),
        (stack("/home/me/train.py:bookkeeping", text="table = {}"), "python"),
        (stack(*IMPORTS, f"{TORCH}/distributed/distributed_c10d.py:<module>"), "importing"),
        (stack(*IMPORTS, f"{TORCH}/nn/functional.py:<module>", f"{TORCH}/_ops.py:<module>"), "importing"),
        (stack(NEXT, *IMPORTS, f"{TORCH}/_inductor/codecache.py:<module>"), "importing"),
        (stack(*IMPORTS, "/home/me/app.py:<module>", STEP, f"{TORCH}/optim/adam.py:Adam.step"), "optimizer"),
    ],
)  # fmt: skip
def test_the_innermost_telling_frame_decides_the_class(seen: CallStack, expected: str) -> None:
    assert stacks.class_of(seen) == expected


def test_an_import_is_told_by_the_outermost_package_and_no_training() -> None:
    inner = stack(*IMPORTS, f"{TORCH}/__init__.py:<module>", *IMPORTS, "/venv/lib/site-packages/sympy/core.py:<module>")
    assert stacks.leaf_of(inner) == "importing torch"
    begun = (*stack(text="from torchvision import models"), *stack(*IMPORTS)[1:])
    assert stacks.leaf_of(begun) == "importing torchvision"


@pytest.mark.parametrize(
    ("seen", "trains"),
    [
        # A model that is built is no training yet.
        (stack(f"{TORCH}/nn/modules/linear.py:Linear.__init__", f"{TORCH}/nn/init.py:uniform_"), False),
        (stack(CALL, f"{TORCH}/nn/modules/linear.py:Linear.forward"), True),
        (stack(*IMPORTS, f"{TORCH}/nn/modules/module.py:<module>"), False),
        (WAIT, True),
        (IDLE, False),
    ],
)
def test_what_only_prepares_is_no_training(seen: CallStack, trains: bool) -> None:
    assert stacks.is_training(seen) is trains
    assert stacks.is_worker(seen) == (seen == IDLE)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([QUEUE, f"{TORCH}/multiprocessing/reductions.py:rebuild_storage_fd"], "unpacking"),
        ([f"{LOADER}:DataLoader._get_iterator", f"{LIB}/multiprocessing/popen_fork.py:_launch"], "starting workers"),
        ([f"{LOADER}:_shutdown_workers", f"{LIB}/multiprocessing/process.py:join"], "ending workers"),
        ([QUEUE], "waiting"),
    ],
)  # fmt: skip
def test_kinds_of_waiting_for_data_are_told(frames: list[str], expected: str) -> None:
    assert stacks.data_wait_kind(stack(NEXT, *frames)) == expected


names = st.text(max_size=20)
any_stack = st.lists(st.builds(Call, names, names, st.integers(0, 9), names), min_size=1, max_size=6).map(tuple)


@given(any_stack)
def test_every_stack_has_a_class_and_a_place(seen: CallStack) -> None:
    assert stacks.class_of(seen) in stacks.CLASSES
    assert stacks.leaf_of(seen)
    assert stacks.data_wait_kind(seen)
