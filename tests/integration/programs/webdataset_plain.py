import io
import tarfile
import tempfile

import torch
import webdataset as wds
from planted import spend


def write(path, samples):
    with tarfile.open(path, "w") as tar:
        for i in range(samples):
            for name, content in ((f"{i:04d}.txt", b"x" * 20), (f"{i:04d}.cls", str(i % 3).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def decode(sample):
    spend("input", 0.001)
    return torch.full((8,), float(len(sample[0]))), sample[1]


model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tempfile.TemporaryDirectory() as folder:
    write(f"{folder}/shard.tar", 150)
    dataset = (
        wds.WebDataset(f"{folder}/shard.tar", shardshuffle=False, empty_check=False)
        .shuffle(20)
        .decode()
        .to_tuple("txt", "cls")
        .map(decode)
        .batched(5)
    )
    for _epoch in range(2):
        for x, y in dataset:
            loss = torch.nn.functional.cross_entropy(model(x), torch.as_tensor(y))
            spend("compute", 0.004)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
