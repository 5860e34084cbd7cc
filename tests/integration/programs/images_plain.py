import argparse
import os

import torch
from little_images import LittleImages, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1600)
parser.add_argument("--out", default=".")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
train = DataLoader(LittleImages(args.images), batch_size=16, shuffle=True, num_workers=args.workers)
val = DataLoader(LittleImages(160, seed=1, read_ms=0), batch_size=32, num_workers=args.workers)
model = net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in val:
            right += (model(x).argmax(1) == y).sum().item()
    torch.save({"epoch": epoch, "model": model.state_dict()}, os.path.join(args.out, "images_plain.pt"))
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / 160:.2f}")
