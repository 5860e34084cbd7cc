import logging
import warnings

import lightning as L
import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Data(Dataset):
    def __init__(self, samples, what):
        self.samples, self.what = samples, what

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        spend(self.what, 0.005)
        return torch.randn(8), torch.randn(1)


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        spend("compute", 0.02)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(x), y))

    def test_step(self, batch, batch_idx):
        self.validation_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
train, val = DataLoader(Data(80, "input"), batch_size=4), DataLoader(Data(16, "boundary"), batch_size=4)
model = Regression()
trainer.fit(model, train, val)
trainer.test(model, DataLoader(Data(24, "boundary"), batch_size=4), verbose=False)
