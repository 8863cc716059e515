"""A language model whose update is written by hand, as in word_language_model."""

import math

import torch
from torch import nn

SENTENCE = [1, 4, 2, 7, 3, 5, 1, 6, 2, 0, 4, 4, 3, 7, 5, 2] * 6


class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 1)
        self.drop = nn.Dropout(0.2)
        self.decoder = nn.Linear(width, words)
        self.init_weights()

    def init_weights(self):
        span = 0.1
        nn.init.uniform_(self.encoder.weight, -span, span)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -span, span)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(output)), hidden


def batchify(numbers, size):
    data = torch.tensor(numbers)
    count = data.size(0) // size
    return data.narrow(0, 0, count * size).view(size, -1).t().contiguous()


def get_batch(source, i, length):
    length = min(length, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].reshape(-1)


def evaluate(model, source, criterion):
    model.eval()
    total, hidden = 0.0, None
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, 6):
            data, targets = get_batch(source, i, 6)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output.view(-1, 8), targets).item()
    return total / (len(source) - 1)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = batchify(SENTENCE, 4).to(device)
    model = Model(8, 10).to(device)
    criterion = nn.CrossEntropyLoss()
    lr, best = 2.0, None
    for epoch in range(1, 4):
        model.train()
        hidden = None
        total = 0.0
        for i in range(0, source.size(0) - 1, 6):
            data, targets = get_batch(source, i, 6)
            model.zero_grad()
            if hidden is not None:
                hidden = tuple(h.detach() for h in hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output.view(-1, 8), targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            total += loss.item()
        current = evaluate(model, source, criterion)
        print(
            "| epoch {:d} | lr {:.2f} | train {:.5f} | valid {:.5f} | ppl {:.4f}".format(
                epoch, lr, total / 4, current, math.exp(current)
            )
        )
        if best is None or current < best:
            best = current
        else:
            lr /= 4.0


if __name__ == "__main__":
    main()
