import io
import tarfile
import tempfile

import torch
import webdataset as wds
from planted import spend


def write(path, samples):
    with tarfile.open(path, "w") as tar:
        for i in range(samples):
            info = tarfile.TarInfo(f"{i:04d}.cls")
            content = str(i % 3).encode()
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def decode(sample):
    spend("input", 0.001)
    return (torch.randn(8), sample[0])


model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tempfile.TemporaryDirectory() as folder:
    write(f"{folder}/shard.tar", 240)
    dataset = wds.WebDataset(f"{folder}/shard.tar", shardshuffle=False).decode().to_tuple("cls").map(decode).batched(8)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=0).unbatched().shuffle(16).batched(4)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), torch.as_tensor(y))
        spend("compute", 0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
