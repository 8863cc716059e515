"""An exponential average of the weights, evaluated and written to disk."""

import copy
import json

import torch
from ema import Average
from torch import nn


def penalty(net, strength):
    return strength * sum(weight.pow(2).sum() for name, weight in net.named_parameters() if "bias" not in name)


def main():
    torch.manual_seed(9)
    device = torch.device("cuda:0")
    net = nn.Sequential(nn.Linear(5, 10), nn.BatchNorm1d(10), nn.SiLU(), nn.Linear(10, 3)).to(device)
    average = Average(copy.deepcopy(net), decay=0.9)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12, eta_min=1e-4)
    history = []
    x = torch.randn(60, 5, device=device)
    y = (x[:, :3] * torch.tensor([1.0, 0.5, 2.0], device=device)).argmax(1)
    for step in range(10):
        begin = step * 12 % 60
        output = net(x[begin : begin + 12])
        loss = nn.functional.cross_entropy(output, y[begin : begin + 12]) + penalty(net, 1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update(net)
        if step % 3 == 2:
            average.net.eval()
            with torch.no_grad():
                correct = (average.net(x).argmax(1) == y).sum().item()
            history.append({"step": step, "accuracy": correct / len(y), "lr": schedule.get_last_lr()[0]})
            print("step", step, "accuracy of the average", correct / len(y))
    with open("history.json", "w") as file:
        json.dump(history, file)
    torch.save({"net": net.state_dict(), "average": average.net.state_dict(), "step": step + 1}, "last.pt")


if __name__ == "__main__":
    main()
