import argparse
import logging
import warnings

import lightning as L
import torch
from little_images import LittleImages, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Images(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Data(L.LightningDataModule):
    def __init__(self, images, workers):
        super().__init__()
        self.images, self.workers = images, workers

    def train_dataloader(self):
        return DataLoader(LittleImages(self.images), batch_size=16, shuffle=True, num_workers=self.workers)

    def val_dataloader(self):
        return DataLoader(LittleImages(160, seed=1, read_ms=0), batch_size=32, num_workers=self.workers)


parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=1600)
args = parser.parse_args()

L.seed_everything(0, verbose=False)
torch.set_num_threads(1)
trainer = L.Trainer(
    max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, num_sanity_val_steps=0,
)  # fmt: skip
trainer.fit(Images(), datamodule=Data(args.images, args.workers))
print(f"accuracy {trainer.callback_metrics['accuracy'].item():.2f}")
