import torch
from planted import spend
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(16)


netG, netD = nn.Linear(4, 16), nn.Linear(16, 1)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
for real in DataLoader(Faces(), batch_size=5):
    b = real.size(0)
    netD.zero_grad()
    criterion(netD(real), torch.ones(b, 1)).backward()
    fake = netG(torch.randn(b, 4))
    criterion(netD(fake.detach()), torch.zeros(b, 1)).backward()
    spend("compute", 0.003)
    optimizerD.step()
    netG.zero_grad()
    spend("compute", 0.003)
    criterion(netD(fake), torch.ones(b, 1)).backward()
    optimizerG.step()
    spend("host", 0.002)
