"""`train.py` as fournex's example of an input-bound training does it: loader, step and phases."""

import fournex as frx
from parts import Parts

frx.init(job_name="rivals")

parts = Parts()
net, optimizer = parts.net, parts.optimizer
loader = frx.instrument_dataloader(parts.loader)

for _ in range(parts.epochs):
    parts.begin_epoch()
    for step, batch in parts.steps(loader):
        with frx.step_context(step=step, batch=batch, model=net) as context:
            with frx.phase("forward", step=step, parent_span_id=context["span_id"]):
                loss = net(batch).square().mean()
            with frx.phase("backward", step=step, parent_span_id=context["span_id"]):
                loss.backward()
            with frx.phase("optimizer", step=step, parent_span_id=context["span_id"]):
                if parts.updates:
                    optimizer.step()
                    optimizer.zero_grad()
            parts.after_update()
    parts.after_epoch()
frx.flush()
parts.close()
