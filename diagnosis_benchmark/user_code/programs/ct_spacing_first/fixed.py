"""Patch-based segmentation of small CT studies."""
import argparse
import pathlib
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PIXDIM = (3.0, 1.0, 1.0)      # of the scanner, in mm; the net wants 1 mm in every direction


def write_studies(root, count, seed):
    rng = np.random.default_rng(seed)
    d, h, w = 40, 160, 160
    z, y, x = np.ogrid[:d, :h, :w]
    air = rng.integers(-1010, -990, (d, h, w), dtype=np.int16)
    for n in range(count):
        cz, cy, cx = rng.uniform(16, 24), rng.uniform(66, 94), rng.uniform(66, 94)
        body = ((z - cz) / 14) ** 2 + ((y - cy) / 30) ** 2 + ((x - cx) / 34) ** 2 < 1
        organ = ((z - cz) / 7) ** 2 + ((y - cy - 6) / 13) ** 2 + ((x - cx + 8) / 12) ** 2 < 1
        scan = np.where(body, np.int16(40), air)
        scan[organ] += np.int16(60)
        np.savez(root / f"study{n:02d}.npz", image=scan, label=organ.astype(np.uint8))


def load_study(path):
    with np.load(path) as study:
        return {k: torch.from_numpy(study[k])[None].float() for k in ("image", "label")}


def spacing(data):
    image = F.interpolate(data["image"][None], scale_factor=PIXDIM, mode="trilinear")
    label = F.interpolate(data["label"][None], scale_factor=PIXDIM, mode="nearest")
    return {"image": image[0], "label": label[0]}


def crop_foreground(data, above=-300, margin=2):
    inside = data["image"][0] > above
    box = [slice(None)]
    for others in ((1, 2), (0, 2), (0, 1)):
        hit = inside.any(dim=others).nonzero().flatten()
        box.append(slice(max(int(hit[0]) - margin, 0), int(hit[-1]) + margin + 1))
    return {k: v[tuple(box)] for k, v in data.items()}


def scale_intensity(data):
    return {"image": data["image"].clamp(-200, 300).add(200).div(500), "label": data["label"]}


def random_patch(data, size=32):
    at = [int(torch.randint(0, max(n - size, 0) + 1, ())) for n in data["image"].shape[1:]]
    cut = (slice(None), *(slice(a, a + size) for a in at))
    return data["image"][cut].clone(), data["label"][cut].clone()


class Studies(Dataset):
    def __init__(self, paths, transforms, repeat):
        self.paths, self.transforms = list(paths) * repeat, transforms

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        data = self.paths[i]
        for transform in self.transforms:
            data = transform(data)
        return data


def make_net(c):
    return nn.Sequential(
        nn.Conv3d(1, c, 3, padding=1), nn.ReLU(), nn.Conv3d(c, c, 3, padding=1), nn.ReLU(), nn.Conv3d(c, 1, 1)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    root = pathlib.Path(tempfile.mkdtemp(prefix="ct_"))
    write_studies(root, count=12, seed=4)
    transforms = [
        load_study,
        crop_foreground,
        spacing,
        scale_intensity,
        random_patch,
    ]
    loader = DataLoader(Studies(sorted(root.glob("*.npz")), transforms, repeat=8), args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True, drop_last=True)
    net = make_net(6)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    done, begin = 0, time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for image, label in loader:
            loss = F.binary_cross_entropy_with_logits(net(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            done += len(image)
        print(f"epoch {epoch} loss {np.mean(losses):.4f}", flush=True)
    took = time.perf_counter() - begin
    shutil.rmtree(root)
    print(f"throughput: {done / took:.1f} samples/s")


if __name__ == "__main__":
    main()
