import tempfile

from hf_trainer import Reviews, Slower, collate, config
from transformers import Trainer, TrainingArguments

# 26 batches an epoch, the last one of two: all four of an update are fetched before the first of them is computed.
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=6, per_device_train_batch_size=4, gradient_accumulation_steps=4, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    Trainer(Slower(config), arguments, data_collator=collate, train_dataset=Reviews(104, "input")).train()
