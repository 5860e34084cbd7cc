# %% Who stays another year? Visits of patients, one vector per source, and three outcomes.
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)

SOURCES = {"blood": 96, "urine": 48, "vitals": 144, "drugs": 120, "history": 256, "habits": 32, "family": 24}
OUTCOMES = ["readmitted", "transferred", "discharged"]


# %%
class Visits(Dataset):
    def __init__(self, n=5_120):
        g = torch.Generator().manual_seed(0)
        self.data = {name: torch.randn(n, width, generator=g) for name, width in SOURCES.items()}
        mixed = sum(values.sum(1) for values in self.data.values())
        self.label = torch.bucketize(mixed / mixed.std(), torch.tensor([-0.5, 0.5]))

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        sample = {name: values[i] for name, values in self.data.items()}
        sample["label"] = self.label[i]
        sample["id"] = i
        return sample


loader = DataLoader(Visits(), batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)


# %%
class Net(nn.Module):
    def __init__(self, width=288):
        super().__init__()
        self.inputs = nn.ModuleDict({name: nn.Linear(n, width) for name, n in SOURCES.items()})
        self.trunk = nn.Sequential(
            nn.Linear(width * len(SOURCES), width * 2), nn.ReLU(), nn.Linear(width * 2, width), nn.ReLU()
        )
        self.head = nn.Linear(width, len(OUTCOMES))

    def forward(self, batch):
        parts = [F.relu(layer(batch[name])) for name, layer in self.inputs.items()]
        return self.head(self.trunk(torch.cat(parts, dim=1)))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


# %%
def epoch_metrics(collected):
    prob = torch.cat([batch["prob"] for batch in collected]).numpy()
    label = torch.cat([batch["label"] for batch in collected]).numpy()
    hit = prob.argmax(1) == label
    return {"accuracy": hit.mean(), **{name: hit[label == k].mean() for k, name in enumerate(OUTCOMES)}}


# %%
seen = 0
t0 = time.perf_counter()
for epoch in range(2):
    collected = []
    for batch in loader:
        logits = net(batch)
        loss = F.cross_entropy(logits, batch["label"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        batch["prob"] = logits.detach().softmax(1)
        collected.append(batch)
        seen += len(batch["id"])
    print(epoch, {k: round(float(v), 3) for k, v in epoch_metrics(collected).items()})

print(f"throughput: {seen / (time.perf_counter() - t0):.1f} samples/s")
