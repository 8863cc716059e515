"""A script with DataParallel, a shorter one, and their migration by the rule data_parallel_ddp."""

from __future__ import annotations

from textwrap import dedent

from migration.checking import migrate_source

SCRIPT = """\
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x)

    def get_loaders(batch):
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
        train = DataLoader(data, batch_size=batch, shuffle=True)
        test = DataLoader(data, batch_size=batch)
        return train, test

    def train_epoch(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()

    def save_checkpoint(model, path):
        \"\"\"Keep the weights.\"\"\"
        torch.save(model.module.state_dict(), path)
        print("saved")

    def main(args):
        torch.manual_seed(1)
        train_loader, test_loader = get_loaders(8)
        model = Net()
        model = nn.DataParallel(model, device_ids=[0, 1])
        model.to("cuda:0")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(args.epochs):
            train_epoch(model, train_loader, optimizer)
            save_checkpoint(model, args.save)

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--save", default="net.pt")
        main(parser.parse_args())
    """


LOOP = """\
import math
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(net, loader, opt):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item() * x.size(0)
        if i % 10 == 0:
            print(loss)
    return total

def main(data, test):
    loader = DataLoader(data, batch_size=20, shuffle=True)
    net = nn.DataParallel(nn.Linear(6, 3).cuda())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    best, bad = 1e9, 0
    for epoch in range(20):
        total = train(net, loader, opt)
        DECISION

if __name__ == "__main__":
    main(1, 2)
"""


def ddp(source: str = SCRIPT, rule: str = "data_parallel_ddp", **options: object) -> tuple[str, list[tuple[str, str]]]:
    result = migrate_source(dedent(source), rule, data_parallel="ddp", **options)
    return result.after.decode(), [(finding.status, finding.message) for finding in result.findings]
