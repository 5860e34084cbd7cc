"""`train.py` as TraceML's quickstart wants it: `init`, and a `trace_step` around each step."""

import traceml_ai as traceml
from parts import Parts

traceml.init(mode="auto")

parts = Parts()
net, optimizer, loader = parts.net, parts.optimizer, parts.loader

for _ in range(parts.epochs):
    parts.begin_epoch()
    for _step, batch in parts.steps(loader):
        # Up to the end of the loop's body: what its documentation says to wrap ends with the optimizer, but then it
        # would not see the work after that, which its "residual" is to show.
        with traceml.trace_step(net):
            loss = net(batch).square().mean()
            loss.backward()
            if parts.updates:
                optimizer.step()
                optimizer.zero_grad()
            parts.after_update()
    parts.after_epoch()
parts.close()
