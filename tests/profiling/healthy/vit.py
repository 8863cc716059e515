"""Healthy: a small vision transformer with AdamW and gradient clipping."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, width=192, depth=3, patch=8, side=64, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        self.encoder = nn.Sequential(*(self.make_layer(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def make_layer(self, width):
        return nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.encoder(tokens)).mean(1))


def main():
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    criterion = nn.CrossEntropyLoss()
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(10, (32,))
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
