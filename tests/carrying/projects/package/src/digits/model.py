import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, ratio=2):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide = nn.Linear(width, width * ratio)
        self.narrow = nn.Linear(width * ratio, width)
        self.scale = 0.5

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.wide(self.norm(x)))
        return x + self.scale * self.narrow(hidden)


class Net(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList([Block(width), Block(width, ratio=3)])
        self.head = nn.Linear(width, classes)
        self.temperature = 2.0

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        if self.training:
            return self.head(x) / self.temperature
        return self.head(x).clamp(min=-8, max=8)


def build(options):
    net = Net(options.width, options.classes)
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.2)
            nn.init.constant_(module.bias, 0.01)
    return net
