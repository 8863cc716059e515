import torch.nn.functional as F
from torch import nn


class SmallNet(nn.Module):
    def __init__(self, classes, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6, eps=1e-5, momentum=0.1)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(8 * 3 * 3, classes)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=1, padding=1)
        x = F.leaky_relu(self.bn2(self.conv2(x)), negative_slope=0.1)
        return self.fc(self.drop(x.flatten(1)))
