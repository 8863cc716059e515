"""One process, all cards: nn.DataParallel around a network for sequences, as many older repositories have it.

CUDA_VISIBLE_DEVICES=0,1 python data_parallel.py --epochs 2
"""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--gpu_ids", default="0", type=str, help="ids of the cards, for instance 0,1,2; -1 for the CPU")
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--steps", default=0, type=int, help="end an epoch after so many steps (0: do not)")
parser.add_argument("--batch_size", default=32, type=int)
parser.add_argument("--hidden", default=32, type=int)
parser.add_argument("--save", default="tagger.pth")
args = parser.parse_args()
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu_ids

import torch  # noqa: E402  the cards must be chosen before
import torch.nn as nn  # noqa: E402
from torch.autograd import Variable  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
WORDS, TAGS, LENGTH = 50, 5, 12


class Tagger(nn.Module):
    """A tag for every word: the word itself decides, and the one before."""

    def __init__(self, hidden):
        super(Tagger, self).__init__()
        self.hidden = hidden
        self.embedding = nn.Embedding(WORDS, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, TAGS)

    def init_hidden(self, batch):
        return Variable(FloatTensor(1, batch, self.hidden).zero_())

    def forward(self, words):
        self.rnn.flatten_parameters()
        states, _ = self.rnn(self.embedding(words), self.init_hidden(words.size(0)).to(words.device))
        return self.output(states)


def make_data(sentences, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (sentences, LENGTH), generator=generator)
    before = torch.cat([torch.zeros(sentences, 1, dtype=torch.long), words[:, :-1]], dim=1)
    return TensorDataset(words, (words + before) % TAGS)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for words, tags in loader:
            if use_cuda:
                words, tags = words.cuda(), tags.cuda()
            right += (model(words).argmax(-1) == tags).sum().item()
            total += tags.numel()
    return right / total


def main():
    torch.manual_seed(1)
    if use_cuda:
        torch.cuda.manual_seed_all(1)
    train_loader = DataLoader(make_data(640, 0), args.batch_size, shuffle=True, num_workers=0, pin_memory=use_cuda)
    test_loader = DataLoader(make_data(64, 1), args.batch_size)

    model = Tagger(args.hidden)
    if torch.cuda.device_count() > 1:
        print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
    if use_cuda:
        model = model.cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        for step, (words, tags) in enumerate(train_loader):
            if args.steps and step == args.steps:
                break
            if use_cuda:
                words, tags = words.cuda(non_blocking=True), tags.cuda(non_blocking=True)
            loss = criterion(model(words).flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.module.parameters(), 5.0)
            optimizer.step()
        accuracy = evaluate(model, test_loader)
        print("epoch %d loss %.4f accuracy %.4f" % (epoch, loss.item(), accuracy))
        if accuracy >= best:
            best = accuracy
            torch.save({"model": model.module.state_dict(), "accuracy": best}, args.save)

    model.module.load_state_dict(torch.load(args.save)["model"])
    if use_cuda:
        torch.cuda.empty_cache()
    print("best accuracy %.4f" % evaluate(model, test_loader))


if __name__ == "__main__":
    main()
