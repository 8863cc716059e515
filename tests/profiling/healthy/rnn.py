"""Healthy: an LSTM over sequences of tokens."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 256)
        self.lstm = nn.LSTM(256, 256, batch_first=True)
        self.head = nn.Linear(256, 5)

    def forward(self, tokens):
        outputs, _ = self.lstm(self.embedding(tokens))
        return self.head(outputs[:, -1])


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    tokens, labels = torch.randint(1000, (128, 32)), torch.randint(5, (128,))
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(model(tokens), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
