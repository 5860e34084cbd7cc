import tempfile

import torch
from planted import spend
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.tokenization_utils_base import BatchEncoding


class Reviews(Dataset):
    def __init__(self, samples, what):
        self.samples, self.what = samples, what

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        spend(self.what, 0.005)
        return {"input_ids": torch.randint(50, (6,)), "labels": torch.tensor(index % 2)}


def collate(rows):
    return BatchEncoding({key: torch.stack([row[key] for row in rows]) for key in rows[0]})


class Slower(BertForSequenceClassification):
    def forward(self, input_ids=None, labels=None, **kwargs):
        spend("compute" if self.training else "boundary", 0.015)
        return super().forward(input_ids, labels=labels, **kwargs)


config = BertConfig(
    vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
    max_position_embeddings=8,
)  # fmt: skip

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
            disable_tqdm=True, eval_strategy="epoch", logging_strategy="no",
        )  # fmt: skip
        train, test = Reviews(80, "input"), Reviews(16, "boundary")
        Trainer(Slower(config), arguments, data_collator=collate, train_dataset=train, eval_dataset=test).train()
