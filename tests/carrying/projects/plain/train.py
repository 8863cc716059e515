"""A single script: a small network, a pass of evaluation after each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    y = (x[:, 0] * 2 + x[:, 1] > 0.5).long()
    return TensorDataset(x, y)


def evaluate(net, loader, device):
    net.eval()
    total, correct, loss_sum = 0, 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            output = net(x)
            loss_sum += nn.functional.cross_entropy(output, y, reduction="sum").item()
            correct += (output.argmax(1) == y).sum().item()
            total += y.size(0)
    net.train()
    return loss_sum / total, 100.0 * correct / total


def main():
    device = torch.device("cuda")
    train = DataLoader(make_data(40, 1), batch_size=8, shuffle=True)
    test = DataLoader(make_data(24, 2), batch_size=12)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        running = 0.0
        for step, (x, y) in enumerate(train):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
            if step % 2 == 1:
                print(f"epoch {epoch} step {step} loss {running / 2:.6f}")
                running = 0.0
        test_loss, accuracy = evaluate(net, test, device)
        print(f"epoch {epoch} test loss {test_loss:.6f} accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
