# Multitask toxicity prediction from the fragments of molecules (synthetic assay data).
import os
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(123)
torch.set_num_threads(1)

N_MOLECULES, N_FRAGMENTS, PER_MOLECULE, N_TASKS = 512, 150_000, 40, 12


class FragmentNet(nn.Module):
    def __init__(self, dim=64, hidden=1024):
        super().__init__()
        self.fragments = nn.EmbeddingBag(N_FRAGMENTS, dim, mode="sum", sparse=True)
        self.shared = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.Linear(hidden, N_TASKS)

    def forward(self, fragments):
        return self.heads(self.shared(self.fragments(fragments)))


class Model:
    def __init__(self, net, model_dir, learning_rate=0.001, keep=3, save_every=10):
        self.net = net
        dense = [*net.shared.parameters(), *net.heads.parameters()]
        self.optimizers = [torch.optim.SparseAdam(net.fragments.parameters(), lr=learning_rate),
                           torch.optim.Adam(dense, lr=learning_rate)]
        self.model_dir = model_dir
        self.keep = keep
        self.save_every = save_every
        self.saved = []
        self.step = 0

    def save(self):
        path = os.path.join(self.model_dir, f"model-{self.step}.pt")
        state = {"step": self.step, "net": self.net.state_dict()}
        state["optimizers"] = [o.state_dict() for o in self.optimizers]
        torch.save(state, path)
        self.saved.append(path)
        while len(self.saved) > self.keep:
            os.remove(self.saved.pop(0))

    def fit(self, loader, nb_epoch):
        trained = 0
        for epoch in range(nb_epoch):
            avg_loss = 0.0
            for fragments, outcome, weight in loader:
                logits = self.net(fragments)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, outcome, weight)
                self.net.zero_grad()
                loss.backward()
                for optimizer in self.optimizers:
                    optimizer.step()
                self.step += 1
                avg_loss += loss.item()
                trained += len(fragments)
            print(f"Ending epoch {epoch}: average loss {avg_loss / len(loader):.5f}")
            if (epoch + 1) % self.save_every == 0:
                self.save()
        return trained


fragments = torch.randint(N_FRAGMENTS, (N_MOLECULES, PER_MOLECULE))
outcome = (torch.rand(N_MOLECULES, N_TASKS) < 0.3).float()
weight = (torch.rand(N_MOLECULES, N_TASKS) < 0.8).float()
loader = DataLoader(TensorDataset(fragments, outcome, weight), batch_size=64, shuffle=True)

with tempfile.TemporaryDirectory() as model_dir:
    model = Model(FragmentNet(), model_dir)
    time1 = time.perf_counter()
    trained = model.fit(loader, nb_epoch=30)
    time2 = time.perf_counter()
print("TIMING: fitting took %0.3f s" % (time2 - time1))
print(f"throughput: {trained / (time2 - time1):.1f} samples/s")
