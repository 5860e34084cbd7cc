"""Topic of support tickets: text column -> encoder -> class, trained from a small declarative config."""
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "input": {"vocabulary": 4000, "longest": 48},
    "encoder": {"width": 64, "layers": 2, "heads": 4},
    "output": {"classes": 12},
    "trainer": {"epochs": 6, "batch_size": 32, "learning_rate": 5e-4},
    "split": {"train": 800, "validation": 96},
}


class Tickets(Dataset):
    def __init__(self, count, seed, vocabulary, longest, classes):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (count,), generator=g)
        lengths = torch.randint(longest // 2, longest, (count,), generator=g).tolist()
        self.texts = []
        for label, length in zip(self.labels.tolist(), lengths):
            text = torch.randint(1, vocabulary, (length,), generator=g)
            text[: length // 4] = 1 + label * 40 + torch.randint(40, (length // 4,), generator=g)
            self.texts.append(text)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.texts[i], self.labels[i]


def pad(items):
    texts, labels = zip(*items)
    return pad_sequence(texts, batch_first=True), torch.stack(labels)


class TextClassifier(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, texts):
        states = self.encoder(self.embedding(texts), src_key_padding_mask=texts == 0)
        return self.head(states.mean(1))


class Accuracy:
    def __init__(self):
        self.loss = self.right = self.count = 0

    def update(self, scores, labels):
        self.loss += nn.functional.cross_entropy(scores, labels, reduction="sum").item()
        self.right += (scores.argmax(-1) == labels).sum().item()
        self.count += len(labels)

    def compute(self):
        return {"loss": self.loss / self.count, "accuracy": self.right / self.count}


class Trainer:
    def __init__(self, model, epochs, batch_size, learning_rate):
        self.model, self.epochs, self.batch_size = model, epochs, batch_size
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
        self.history = {"training": [], "validation": []}

    def batches(self, data, shuffle=False):
        return DataLoader(data, self.batch_size, shuffle=shuffle, num_workers=1, collate_fn=pad, persistent_workers=True)

    @torch.no_grad()
    def evaluation(self, loader):
        self.model.eval()
        metrics = Accuracy()
        for texts, labels in loader:
            metrics.update(self.model(texts), labels)
        self.model.train()
        return metrics.compute()

    def train_step(self, texts, labels):
        scores = self.model(texts)
        loss = nn.functional.cross_entropy(scores, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return scores.detach()

    def train(self, training_set, validation_set):
        training = self.batches(training_set, shuffle=True)
        validation = self.batches(validation_set)
        seen, start = 0, time.perf_counter()
        for epoch in range(self.epochs):
            metrics = Accuracy()
            for texts, labels in training:
                metrics.update(self.train_step(texts, labels), labels)
                seen += len(labels)
            self.history["training"].append(metrics.compute())
            self.history["validation"].append(self.evaluation(validation))
            self.report(epoch)
        return seen / (time.perf_counter() - start)

    def report(self, epoch):
        for split, rows in self.history.items():
            print(f"epoch {epoch} {split:>10}: " + "  ".join(f"{k} {v:.3f}" for k, v in rows[-1].items()))


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    classes = CONFIG["output"]["classes"]
    train_set, held_out = (
        Tickets(count, seed, classes=classes, **CONFIG["input"]) for seed, count in enumerate(CONFIG["split"].values())
    )
    model = TextClassifier(CONFIG["input"]["vocabulary"], classes=classes, **CONFIG["encoder"])
    rate = Trainer(model, **CONFIG["trainer"]).train(train_set, held_out)
    print(f"throughput: {rate:.1f} samples/s")
