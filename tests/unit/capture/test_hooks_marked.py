"""Waits and steps that a program marks, in loops that the hooks record."""

from __future__ import annotations

import torch

from support.loops import Net, Recording


def test_a_marked_wait_within_a_marked_wait_is_part_of_it(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(5):
        assert tell(lambda loop: loop.wait_begins())
        for _ in range(3):
            assert not tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))
        net.learn([torch.ones(4, 3)])
    assert len(recording.done()) == 5


def test_marked_waits_with_nothing_learnt_between_are_no_steps_and_cost_no_later_ones(unhurried: Recording) -> None:
    assert unhurried.hooks is not None
    net, tell = Net(), unhurried.hooks.tell

    def wait() -> None:
        assert tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))

    for _ in range(2):
        wait()
    for _ in range(5):
        wait()
        net.learn([torch.ones(4, 3)])
    assert not unhurried.notices
    # That the waits feed a training is known from the first backward pass behind one.
    assert len(unhurried.done()) == 4
    assert unhurried.steps.count("optimizer_end") == [1] * 4
    assert unhurried.boundaries == 1


def test_a_marked_wait_after_a_checkpoint_costs_no_marked_step(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(3):
        tell(lambda loop: loop.step_begins())
        net.learn([torch.ones(4, 3)])
        tell(lambda loop: loop.boundary_begins())
        tell(lambda loop: loop.boundary_ends())
        assert tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))
    assert not recording.notices
    assert len(recording.done()) == 3
