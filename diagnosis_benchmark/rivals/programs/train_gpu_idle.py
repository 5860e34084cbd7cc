"""`train.py` as gpu-idle wants it: torch's profiler with a schedule, a call a step, and a trace at the end."""

import os
from pathlib import Path

import torch
from parts import FOLDER, Parts

parts = Parts()
net, optimizer, loader = parts.net, parts.optimizer, parts.loader

profiler = torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=0, warmup=10, active=30, repeat=1),
)
profiler.start()
for _ in range(parts.epochs):
    parts.begin_epoch()
    for _step, batch in parts.steps(loader):
        loss = net(batch).square().mean()
        loss.backward()
        if parts.updates:
            optimizer.step()
            optimizer.zero_grad()
        parts.after_update()
        profiler.step()
    parts.after_epoch()
profiler.stop()
profiler.export_chrome_trace(str(Path(os.environ[FOLDER]) / "trace.json"))
parts.close()
