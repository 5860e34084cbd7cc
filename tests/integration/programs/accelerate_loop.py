import torch
from accelerate import Accelerator
from planted import spend
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        spend("input", 0.002)
        return {"x": torch.randn(8), "y": torch.randn(1)}


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
model, optimizer, loader, scheduler = accelerator.prepare(
    model, optimizer, DataLoader(Data(), batch_size=4, shuffle=True), scheduler
)
for _epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            spend("compute", 0.006)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
