"""Two-contrast MR tumour segmentation on patches drawn from whole volumes kept in memory."""
import copy
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATCH = 32
VOLUME = (160, 192, 160)


@dataclass
class Scan:
    data: torch.Tensor
    affine: torch.Tensor = field(default_factory=lambda: torch.eye(4))

    def crop(self, corner):
        i, j, k = corner
        self.data = self.data[:, i:i + PATCH, j:j + PATCH, k:k + PATCH]
        self.affine[:3, 3] += self.affine[:3, :3] @ torch.tensor(corner, dtype=torch.float32)


class Subject(dict):
    def crop(self, corner):
        for scan in self.values():
            scan.crop(corner)
        return self


def make_subject(seed):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand((1, *VOLUME), generator=generator)
    label = torch.zeros((1, *VOLUME), dtype=torch.uint8)
    for _ in range(12):
        i, j, k = (int(torch.randint(10, n - 30, (1,), generator=generator)) for n in VOLUME)
        label[:, i:i + 22, j:j + 18, k:k + 20] = 1
    return Subject(t1=Scan(noise + 0.5 * label), flair=Scan(0.5 * noise + label), label=Scan(label))


class UniformPatches(Dataset):
    """Every index is one random patch of one subject."""

    def __init__(self, subjects, patches_per_volume):
        self.subjects = subjects
        self.patches_per_volume = patches_per_volume

    def __len__(self):
        return len(self.subjects) * self.patches_per_volume

    def extract(self, subject, corner):
        patch = copy.deepcopy(subject)
        return patch.crop(corner)

    def __getitem__(self, index):
        subject = self.subjects[index % len(self.subjects)]
        corner = [int(torch.randint(0, n - PATCH + 1, (1,))) for n in VOLUME]
        patch = self.extract(subject, corner)
        image = torch.cat([patch["t1"].data, patch["flair"].data])
        image = (image - image.mean()) / (image.std() + 1e-6)
        if torch.rand(1) < 0.5:
            return image.flip(3), patch["label"].data.flip(3)
        return image, patch["label"].data


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.net = nn.Sequential(
            nn.Conv3d(2, 10, 3, padding=1, stride=2), nn.ReLU(), nn.Conv3d(10, 12, 3, padding=1), nn.ReLU(),
            nn.ConvTranspose3d(12, 1, 2, stride=2))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.9)
        self.seen = 0

    def step(self, image, label):
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(image), label.float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.seen += len(image)
        return loss

    def fit(self, epochs):
        begin = time.perf_counter()
        for epoch in range(epochs):
            for image, label in self.loader:
                loss = self.step(image, label)
            print(f"epoch {epoch}: bce {loss.item():.4f}")
        return self.seen / (time.perf_counter() - begin)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    subjects = [make_subject(seed) for seed in range(4)]
    patches = UniformPatches(subjects, patches_per_volume=48)
    loader = DataLoader(patches, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    rate = Trainer(loader).fit(epochs=6)
    print(f"throughput: {rate:.1f} samples/s")


if __name__ == "__main__":
    main()
