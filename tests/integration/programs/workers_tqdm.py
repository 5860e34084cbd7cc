import time

import torch
from planted import spend
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Slow(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        time.sleep(0.004)
        return {"x": torch.full((16,), float(index)), "y": torch.tensor([float(index)])}


model = nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(Slow(), batch_size=8, num_workers=2, persistent_workers=True)
for epoch in range(2):
    with tqdm(enumerate(loader), total=len(loader), desc=f"epoch {epoch}", disable=None) as bar:
        for _step, batch in bar:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            spend("compute", 0.003)
            loss.backward()
            optimizer.step()
            bar.set_postfix(loss=loss.item())
