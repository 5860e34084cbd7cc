#!/usr/bin/env python
# coding: utf-8

# # Fashion classifier

# In[1]:


import torch
from planted import spend, spending
from torch.utils.data import DataLoader, TensorDataset


# In[2]:


def transform(samples):
    spend("input", 0.004)
    x, y = zip(*samples)
    return torch.stack(x), torch.stack(y)


training_data = TensorDataset(torch.randn(320, 16), torch.randint(10, (320,)))
train_dataloader = DataLoader(training_data, batch_size=8, collate_fn=transform)


# In[3]:


X, y = next(iter(train_dataloader))
X.shape, y.dtype


# In[4]:


model = torch.nn.Linear(16, 10)
loss_fn = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


# In[5]:


size = len(train_dataloader.dataset)
model.train()
for batch, (X, y) in enumerate(train_dataloader):
    pred = model(X)
    loss = loss_fn(pred, y)
    spend("compute", 0.004)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


# In[6]:


model.eval()
with torch.no_grad(), spending("outside"):
    for X, y in train_dataloader:
        pred = model(X)
