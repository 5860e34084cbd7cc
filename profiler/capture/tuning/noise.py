"""How large the gradient is at optimizer steps, from which the tuner estimates how noisy it is.

Only while a block of a tuning settles, so that nothing of it is in what is measured. Norms stay on the device until the
end of that, where the device has been waited for anyway.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

MOST_STEPS = 16
"""Of a block."""


class GradientWatch:
    """Takes |g|^2 between `start` and `stop`. Never raises; used from the training thread."""

    def __init__(self) -> None:
        self.why: str | None = None
        """Why there is nothing to tell, for good."""
        self._handle: Any = None
        self._optimizer: int | None = None
        self._samples = 0
        """Fed since the last step."""
        self._batches = 0
        self._batches_per_step: int | None = None
        """Of a step whose gradient began after `start`."""
        self._taken: list[tuple[int, int, torch.Tensor]] = []
        """Batches and samples of each step, and |g|^2."""

    def start(self) -> None:
        """From now on."""
        self._samples, self._batches, self._taken = 0, 0, []
        if self.why is not None or self._handle is not None:
            return
        register = getattr(torch_optimizer, "register_optimizer_step_pre_hook", None)
        if register is None:
            self.why = "this torch has no hooks for all optimizers"
            return
        self._handle = register(self._before_step)

    def fed(self, samples: int) -> None:
        """The training was given so many samples."""
        self._samples += samples
        self._batches += 1

    def stop(self) -> tuple[tuple[int, float], ...]:
        """Samples and |g|^2 of each whole optimizer step since `start`. Reads from the device: call it where that is
        waited for anyway."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        taken, self._taken = self._taken, []
        try:
            if not taken:
                return ()
            squares = torch.stack([square for _, _, square in taken]).tolist()
        except Exception as error:
            self.why = f"{type(error).__name__}: {error}"
            return ()
        if len(taken) > 1:
            self._batches_per_step = taken[1][0]
        # The first step's gradient may have begun to be accumulated before `start`.
        first = 0 if taken[0][0] == self._batches_per_step else 1
        told = [(samples, square) for (_, samples, _), square in zip(taken, squares, strict=True)]
        return tuple(each for each in told[first:] if each[0])

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.why is not None or len(self._taken) >= MOST_STEPS or torch.compiler.is_dynamo_compiling():
            return
        fed = self._batches, self._samples
        self._batches = self._samples = 0
        try:
            self._taken.append((*fed, self._square(optimizer)))
        except _CannotTell as reason:
            self.why, self._taken = str(reason), []
        except Exception as error:
            self.why, self._taken = f"{type(error).__name__}: {error}", []

    def _square(self, optimizer: Any) -> torch.Tensor:
        if self._optimizer not in (None, id(optimizer)):
            raise _CannotTell("there are several optimizers")
        self._optimizer = id(optimizer)
        if getattr(optimizer, "grad_scale", None) is not None:
            raise _CannotTell("gradients are scaled until within the optimizer's step")
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            raise _CannotTell("the optimizer has no gradients")
        if any(type(each) is not torch.Tensor or each.layout is not torch.strided for each in gradients):
            raise _CannotTell("gradients are sparse or sharded")
        if len({each.device for each in gradients}) > 1:
            raise _CannotTell("gradients lie on several devices")
        with torch.no_grad():
            norms = torch._foreach_norm([each.detach() for each in gradients])
            return torch.stack([norm.float() for norm in norms]).square().sum()


class _CannotTell(Exception):
    """With the reason."""
