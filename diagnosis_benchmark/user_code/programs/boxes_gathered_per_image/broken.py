import json
import os
import random
import shutil
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 96
GRID = 12


def write_annotations(path, n_images, n_boxes, n_classes):
    dice = random.Random(17)
    ids = dice.sample(range(100000, 999999), n_images)
    images = [{"id": i, "file_name": f"{i:012d}.jpg", "width": 640, "height": 480} for i in ids]
    boxes = []
    for k in range(n_boxes):
        w, h = dice.randint(40, 300), dice.randint(40, 220)
        boxes.append({"id": k, "image_id": dice.choice(ids), "category_id": 3 + 7 * dice.randrange(n_classes),
                      "bbox": [dice.randint(0, 639 - w), dice.randint(0, 479 - h), w, h], "iscrowd": 0})
    names = [{"id": 3 + 7 * c, "name": f"thing{c}"} for c in range(n_classes)]
    with open(path, "w") as f:
        json.dump({"images": images, "annotations": boxes, "categories": names}, f)


def load_detection_records(path):
    with open(path) as f:
        coco = json.load(f)
    class_ids = {c["id"]: k for k, c in enumerate(coco["categories"])}
    records = []
    for image in coco["images"]:
        anns = [a for a in coco["annotations"] if a["image_id"] == image["id"]]
        boxes = [[v / s for v, s in zip(a["bbox"], (640, 480, 640, 480))] for a in anns if not a["iscrowd"]]
        labels = [class_ids[a["category_id"]] for a in anns if not a["iscrowd"]]
        if boxes:
            records.append({"file": image["file_name"], "boxes": boxes, "labels": labels})
    return records


class CocoLike(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        record = self.records[i]
        g = torch.Generator().manual_seed(int(record["file"][:12]))
        image = torch.rand(3, SIDE, SIDE, generator=g) * 0.2
        target = torch.zeros(5, GRID, GRID)
        for (x, y, w, h), label in zip(record["boxes"], record["labels"]):
            image[label % 3, int(y * SIDE):int((y + h) * SIDE), int(x * SIDE):int((x + w) * SIDE)] += 0.5
            row, col = int((y + h / 2) * GRID), int((x + w / 2) * GRID)
            target[:, row, col] = torch.tensor([1.0, x + w / 2, y + h / 2, w, h])
        return image, target


def detector():
    layers, width = [], 3
    for out in (16, 24, 32):
        layers += [nn.Conv2d(width, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers, nn.Conv2d(width, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 5, 1))


def run(folder, n_images=4000, n_boxes=40000, batch=32):
    path = os.path.join(folder, "instances.json")
    write_annotations(path, n_images, n_boxes, 20)

    started = time.perf_counter()
    records = load_detection_records(path)
    print(f"{len(records)} images with boxes", file=sys.stderr)
    train = records[:len(records) * 3 // 5]
    data = DataLoader(CocoLike(train), batch_size=batch, shuffle=True, num_workers=2, drop_last=True)
    net = detector()
    sgd = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    n = 0
    for image, target in data:
        out = net(image)
        has = target[:, 0]
        loss = F.binary_cross_entropy_with_logits(out[:, 0], has)
        loss = loss + (F.l1_loss(out[:, 1:].sigmoid(), target[:, 1:], reduction="none") * has[:, None]).mean() * 5
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        n += len(image)
        if n % (batch * 25) == 0:
            print(f"{n:6d} images, loss {loss.item():.4f}", file=sys.stderr)
    return n / (time.perf_counter() - started)


torch.set_num_threads(1)
torch.manual_seed(2)
folder = tempfile.mkdtemp()
try:
    print(f"throughput: {run(folder):.1f} samples/s")
finally:
    shutil.rmtree(folder)
