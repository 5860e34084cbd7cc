import numpy as np
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from planted import spend


def sample(info):
    if info.iteration >= 30:
        raise StopIteration
    spend("made", 0.001)
    return np.full((8,), info.idx_in_epoch, dtype=np.float32), np.array([info.idx_in_epoch % 3], dtype=np.int64)


@pipeline_def(batch_size=4, num_threads=1, device_id=None, prefetch_queue_depth=1)
def pipeline():
    x, y = fn.external_source(source=sample, num_outputs=2, batch=False)
    return x, y


train_loader = DALIGenericIterator([pipeline()], ["x", "y"], last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _epoch in range(2):
    for data in train_loader:
        x, y = data[0]["x"], data[0]["y"].squeeze(-1)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        spend("compute", 0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
