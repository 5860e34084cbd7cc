"""Street scenes: a small segmentation network on random crops, labels are colour pictures."""
import argparse
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

PALETTE = [
    (0, 0, 0), (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (0, 0, 192),
    (128, 128, 0), (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
]


def draw_scenes(root, count, height=240, width=320):
    rng = np.random.default_rng(7)
    colours = np.array(PALETTE, np.uint8)
    for number in range(count):
        classes = rng.integers(len(PALETTE), size=(height // 40, width // 40)).repeat(40, 0).repeat(40, 1)
        label = colours[classes]
        scene = (label // 2 + rng.integers(0, 90, size=(height, width, 1), dtype=np.uint8)).astype(np.uint8)
        Image.fromarray(scene).save(f"{root}/{number:03d}.jpg", quality=85)
        Image.fromarray(label).save(f"{root}/{number:03d}_label.png", compress_level=1)


def one_hot_it(label, palette):
    semantic_map = []
    for colour in palette:
        same = np.all(np.equal(label, colour), axis=-1)
        semantic_map.append(same)
    return np.stack(semantic_map, axis=-1).astype(np.float32)


class StreetScenes(Dataset):
    def __init__(self, root, palette, crop):
        self.root, self.palette, self.crop = root, palette, crop
        self.names = sorted(name[:-4] for name in os.listdir(root) if name.endswith(".jpg"))

    def __len__(self):
        return len(self.names)

    def load_label(self, name):
        cached = f"{self.root}/{name}_classes.npy"
        if os.path.exists(cached):
            return np.load(cached)
        label = np.asarray(Image.open(f"{self.root}/{name}_label.png"))
        classes = one_hot_it(label, self.palette).argmax(-1).astype(np.uint8)
        with tempfile.NamedTemporaryFile(dir=self.root, delete=False) as file:
            np.save(file, classes)
        os.replace(file.name, cached)
        return classes

    def __getitem__(self, index):
        name = self.names[index]
        image = np.asarray(Image.open(f"{self.root}/{name}.jpg"))
        label = self.load_label(name)
        top = int(torch.randint(image.shape[0] - self.crop, ()))
        left = int(torch.randint(image.shape[1] - self.crop, ()))
        window = np.s_[top : top + self.crop, left : left + self.crop]
        image, label = image[window], label[window]
        if torch.rand(()) < 0.5:
            image, label = image[:, ::-1], label[:, ::-1]
        image = torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32) / 255)
        return image, torch.from_numpy(label.astype(np.int64))


def build_model(classes):
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, classes, 1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="street-")
    try:
        draw_scenes(root, 34)
        scenes = StreetScenes(root, PALETTE, args.crop)
        sampler = RandomSampler(scenes, replacement=True, num_samples=176)
        loader = DataLoader(scenes, args.batch_size, sampler=sampler, num_workers=args.workers, persistent_workers=True)
        model = build_model(len(PALETTE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        criterion = nn.CrossEntropyLoss()

        seen, start = 0, time.perf_counter()
        for epoch in range(args.epochs):
            for images, labels in loader:
                loss = criterion(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(images)
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
