"""Two losses, frozen layers, meters and a confusion matrix; an own autograd function."""

import torch
from meters import Confusion, Meter
from torch import nn


class Clipped(torch.autograd.Function):
    """The identity, whose gradient is limited."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-ctx.limit, ctx.limit), None


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 10), nn.PReLU(), nn.Linear(10, 10), nn.ReLU6())
        self.kind = nn.Linear(10, 3)
        self.size = nn.Linear(10, 1)

    def forward(self, x):
        hidden = Clipped.apply(self.body(x), 0.02)
        return self.kind(hidden), self.size(hidden).squeeze(1)


def main():
    torch.manual_seed(77)
    net = TwoHeads()
    for weight in net.body[0].parameters():
        weight.requires_grad = False
    net = net.cuda()
    trained = [weight for weight in net.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=12, pct_start=0.25)
    losses, errors, confusion = Meter(), Meter(window=3), Confusion(3)
    for step in range(9):
        x = torch.randn(10, 7)
        kind, size = x[:, :3].argmax(1), x.abs().mean(1)
        x, kind, size = x.cuda(), kind.cuda(), size.cuda()
        logits, guess = net(x)
        loss = nn.functional.nll_loss(logits.log_softmax(1), kind) + 0.3 * nn.functional.l1_loss(guess, size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.update(loss.item(), len(x))
        errors.update((guess - size).abs().max().item())
        confusion.update(logits.argmax(1).cpu(), kind.cpu())
    print("loss", losses.mean, "error", errors.mean)
    print("matrix", confusion.matrix.tolist(), "recall", [round(value, 4) for value in confusion.recall()])


if __name__ == "__main__":
    main()
