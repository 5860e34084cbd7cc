import time

import torch
from planted import spend
from spdl.pipeline import PipelineBuilder


def load(index):
    time.sleep(0.003)
    return torch.full((8,), float(index))


pipeline = (
    PipelineBuilder().add_source(range(240)).pipe(load, concurrency=2).aggregate(4).pipe(torch.stack).add_sink(2)
    .build(num_threads=3)
)  # fmt: skip
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
with pipeline.auto_stop():
    for x in pipeline:
        loss = model(x).square().mean()
        spend("compute", 0.003)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
