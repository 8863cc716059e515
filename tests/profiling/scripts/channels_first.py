"""Planted: a convolutional network in NCHW, on a processor whose convolutions are faster in NHWC."""

import torch
from torch import nn


def block(inputs, outputs, stride=1):
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def main():
    torch.manual_seed(0)
    blocks = [block(3, 32), block(32, 64, 2), block(64, 64), block(64, 128, 2)]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    images, labels = torch.randn(16, 3, 56, 56), torch.randint(10, (16,))
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
