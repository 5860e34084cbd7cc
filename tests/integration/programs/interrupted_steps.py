"""A training of very short steps that is sent Ctrl-C as often as the first argument says, each once the one before it
has reached it; then it trains on for 2000 steps. Prints how many reached it."""

import os
import select
import signal
import sys
import time

MOST = int(sys.argv[1])
PATIENCE_S = 120
signal.signal(signal.SIGINT, signal.default_int_handler)
told, tell = os.pipe()
sender = os.fork()
if not sender:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    training = os.getppid()
    for number in range(MOST + 1):
        if not select.select([told], [], [], PATIENCE_S)[0]:
            print(f"the Ctrl-C after {number} others was lost", flush=True)
            os.kill(training, signal.SIGKILL)
            os._exit(1)
        if os.read(told, 1) != b"x":
            os._exit(2)
        if number < MOST:
            # At any place of a step.
            time.sleep((number * 7919 % 1000) * 4e-7)
            os.kill(training, signal.SIGINT)
    os._exit(0)

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1)), batch_size=4, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
came, steps, answer, batches = 0, 0, True, None
while came < MOST or steps < 2000:
    try:
        batches = iter(loader) if batches is None else batches
        for features, targets in batches:
            if answer and steps > 20:
                # The next may come from here on, and not before.
                answer = False
                os.write(tell, b"x")
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(features), targets).backward()
            optimizer.step()
            steps += 1
            if came == MOST and steps >= 2000:
                break
        else:
            batches = None
    except KeyboardInterrupt:
        came, steps, answer = came + 1, 0 if came + 1 == MOST else steps, True
        if came % 5:
            batches = None
        # An optimizer's step that is interrupted where it ends leaves torch without gradients, with us or without.
        torch.set_grad_enabled(True)
os.waitpid(sender, os.WNOHANG)
print(f"{came} reached the training", flush=True)
