import random

import whyidle
import torch
from planted import spend


def batches(samples, batch_size):
    order = list(range(samples))
    random.shuffle(order)
    for begin in range(0, samples, batch_size):
        spend("input", 0.005)
        yield [f"sentence {i}" for i in order[begin : begin + batch_size]]


model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(3):
    for sentences in whyidle.watch(batches(100, 5)):
        x = torch.tensor([[float(len(s))] for s in sentences])
        loss = model(x).square().mean()
        spend("compute", 0.003)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        spend("host", 0.002)
