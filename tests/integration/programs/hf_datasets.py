import torch
from datasets import Dataset, IterableDataset, disable_progress_bars
from planted import spend

disable_progress_bars()


def tokenize(rows):
    return {"n": [len(t) for t in rows["text"]], "label": rows["label"]}


def rows():
    for i in range(150):
        spend("input", 0.001)
        yield {"x": float(i), "label": float(i % 2)}


model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)


def train(x, y):
    loss = torch.nn.functional.mse_loss(model(torch.as_tensor(x).float()[:, None]), torch.as_tensor(y).float()[:, None])
    spend("compute", 0.004)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


table = Dataset.from_dict({"text": [f"text {i}" for i in range(150)], "label": [i % 2 for i in range(150)]})
table = table.map(tokenize, batched=True, remove_columns=["text"]).with_format("torch")
for batch in table.iter(batch_size=5):
    train(batch["n"], batch["label"])
for batch in IterableDataset.from_generator(rows).shuffle(buffer_size=20, seed=0).iter(batch_size=5):
    train(batch["x"], batch["label"])
