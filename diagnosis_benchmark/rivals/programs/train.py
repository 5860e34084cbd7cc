"""The training that every tool is given: a plain PyTorch loop."""

from parts import Parts

parts = Parts()
net, optimizer, loader = parts.net, parts.optimizer, parts.loader

for _ in range(parts.epochs):
    parts.begin_epoch()
    for _step, batch in parts.steps(loader):
        loss = net(batch).square().mean()
        loss.backward()
        if parts.updates:
            optimizer.step()
            optimizer.zero_grad()
        parts.after_update()
    parts.after_epoch()
parts.close()
