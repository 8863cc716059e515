"""A package below src/: model, data, loss and the loop are files of it."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "src"))

from digits.data import make_loaders
from digits.engine import evaluate, train_epoch
from digits.model import build
from digits.options import Options

import torch


def main():
    options = Options()
    device = torch.device("cuda")
    train, test = make_loaders(options)
    net = build(options).cuda()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=options.rate, alpha=0.95, momentum=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for epoch in range(options.epochs):
        loss = train_epoch(net, train, optimizer, device, options)
        top1, top2 = evaluate(net, test, device)
        schedule.step()
        print("[%d] loss %.6f top1 %.3f top2 %.3f lr %.6f" % (epoch, loss, top1, top2, schedule.get_last_lr()[0]))


if __name__ == "__main__":
    main()
