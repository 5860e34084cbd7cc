import argparse
import tempfile

import torch
from little_images import LittleImages, net
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1600)
args = parser.parse_args()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def collate(rows):
    images, labels = zip(*rows)
    return {"pixels": torch.stack(images), "labels": torch.tensor(labels)}


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(1) == predicted.label_ids).mean()}


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=args.epochs, per_device_train_batch_size=16, learning_rate=1e-3, use_cpu=True, seed=0,
        dataloader_num_workers=args.workers, report_to=[], save_strategy="no", eval_strategy="epoch",
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        Classifier(), arguments, data_collator=collate, train_dataset=LittleImages(args.images),
        eval_dataset=LittleImages(160, seed=1, read_ms=0), compute_metrics=accuracy,
    )  # fmt: skip
    trainer.train()
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.2f}")
