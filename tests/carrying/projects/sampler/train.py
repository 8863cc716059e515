"""Its own order of the samples, its own way to make a batch of them, sentences of several lengths."""

import random

import torch
from loading import LengthSampler, Sentences, collate
from torch import nn
from torch.utils.data import DataLoader


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.gru = nn.GRU(8, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 3)

    def forward(self, words, lengths):
        hidden, _ = self.gru(self.embedding(words))
        mask = (torch.arange(words.size(1), device=words.device)[None] < lengths[:, None]).unsqueeze(2)
        pooled = (hidden * mask).sum(1) / lengths[:, None]
        return self.head(pooled)


def main():
    random.seed(4)
    data = Sentences(30)
    loader = DataLoader(data, batch_sampler=LengthSampler(data, 6), collate_fn=collate)
    net = Tagger().cuda()
    weight = torch.tensor([1.0, 2.0, 0.5]).cuda()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1, lr_decay=0.01)
    for epoch in range(2):
        seen, correct = 0, 0
        for words, lengths, tags in loader:
            output = net(words.cuda(), lengths.cuda())
            loss = nn.functional.cross_entropy(output, tags.cuda(), weight=weight)
            net.zero_grad()
            loss.backward()
            optimizer.step()
            seen += tags.numel()
            correct += int((output.argmax(-1).cpu() == tags).sum())
        print(f"epoch {epoch + 1}: {correct} of {seen}, loss {loss:.5f}")


if __name__ == "__main__":
    main()
