"""A worker that a signal kills, or that leaves with an exit code, in the midst of a training.

`dying_worker.py NUMBER`: of the signal, 0: it leaves with exit code 3. Its batches need no file of their own: a lost
one would be a further error, now and then.
"""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, deadly):
        self.deadly = deadly

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 200:
            if self.deadly:
                os.kill(os.getpid(), self.deadly)
            os._exit(3)
        return float(index)


def main():
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for batch in DataLoader(Numbers(int(sys.argv[1])), batch_size=4, num_workers=2, collate_fn=list):
        optimizer.zero_grad()
        net(torch.tensor(batch)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
