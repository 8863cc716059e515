import torch

from .losses import smoothed


def train_epoch(net, loader, optimizer, device, options):
    net.train()
    total, count = 0.0, 0
    optimizer.zero_grad()
    for number, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = smoothed(net(x), y, options.smoothing) / options.accumulate
        loss.backward()
        total += loss.item() * options.accumulate
        count += 1
        if (number + 1) % options.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return total / count


@torch.no_grad()
def evaluate(net, loader, device):
    net.eval()
    top1 = top2 = seen = 0
    for x, y in loader:
        output = net(x.to(device)).cpu()
        best = output.topk(2, dim=1).indices
        top1 += (best[:, 0] == y).sum().item()
        top2 += (best == y.unsqueeze(1)).any(1).sum().item()
        seen += len(y)
    return top1 / seen, top2 / seen
