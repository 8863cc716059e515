"""A word language model (LSTM or Transformer) whose update is written by hand, as in the public example of 2017."""

import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="LSTM", help="RNN_TANH, LSTM, GRU or Transformer")
parser.add_argument("--emsize", type=int, default=16)
parser.add_argument("--nhid", type=int, default=16)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--lr", type=float, default=2.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--bptt", type=int, default=8)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--tied", action="store_true")
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
torch.manual_seed(args.seed)
device = torch.device("cuda" if args.cuda else "cpu")
NTOKEN = 40


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(args.dropout)
        self.encoder = nn.Embedding(NTOKEN, args.emsize)
        if args.model in ["LSTM", "GRU"]:
            self.rnn = getattr(nn, args.model)(args.emsize, args.nhid, args.nlayers, dropout=args.dropout)
        else:
            self.rnn = nn.RNN(args.emsize, args.nhid, args.nlayers, nonlinearity="tanh", dropout=args.dropout)
        self.decoder = nn.Linear(args.nhid, NTOKEN)
        if args.tied:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)).view(-1, NTOKEN), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        state = weight.new_zeros(args.nlayers, bsz, args.nhid)
        return (state, weight.new_zeros(args.nlayers, bsz, args.nhid)) if args.model == "LSTM" else state


class TransformerModel(nn.Transformer):
    def __init__(self):
        super().__init__(d_model=args.emsize, nhead=2, dim_feedforward=args.nhid, num_encoder_layers=args.nlayers)
        self.src_mask = None
        position = torch.arange(0, 100, dtype=torch.float).unsqueeze(1)
        scale = torch.exp(torch.arange(0, args.emsize, 2).float() * (-math.log(10000.0) / args.emsize))
        table = torch.zeros(100, args.emsize)
        table[:, 0::2], table[:, 1::2] = torch.sin(position * scale), torch.cos(position * scale)
        self.register_buffer("pe", table.unsqueeze(0).transpose(0, 1))
        self.input_emb = nn.Embedding(NTOKEN, args.emsize)
        self.decoder = nn.Linear(args.emsize, NTOKEN)

    def forward(self, src):
        if self.src_mask is None or self.src_mask.size(0) != len(src):
            mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
            self.src_mask = mask.to(src.device)
        src = self.input_emb(src) * math.sqrt(args.emsize) + self.pe[: src.size(0), :]
        output = self.decoder(self.encoder(src, mask=self.src_mask))
        return F.log_softmax(output, dim=-1).view(-1, NTOKEN)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


words = torch.arange(200) * 7 % 31 + torch.arange(200) % 4
train_data, val_data = batchify(words[:150], args.batch_size), batchify(words[150:], 2)
model = (TransformerModel() if args.model == "Transformer" else RNNModel()).to(device)
criterion = nn.NLLLoss()
lr = args.lr


def evaluate(source):
    model.eval()
    total_loss = 0.0
    hidden = None if args.model == "Transformer" else model.init_hidden(2)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            if hidden is None:
                output = model(data)
            else:
                output, hidden = model(data, hidden)
                hidden = repackage_hidden(hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(source) - 1)


def train():
    model.train()
    hidden = None if args.model == "Transformer" else model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        if hidden is None:
            output = model(data)
        else:
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            if p.grad is not None:
                p.data.add_(p.grad, alpha=-lr)
        print(f"| {batch:3d} batches | lr {lr:02.2f} | loss {loss.item():5.4f} | ppl {math.exp(loss.item()):8.2f}")


best_val_loss = None
for epoch in range(1, args.epochs + 1):
    begun = time.time()
    train()
    val_loss = evaluate(val_data)
    print(f"end of epoch {epoch} | time: {time.time() - begun:5.2f}s | valid loss {val_loss:5.4f}")
    if not best_val_loss or val_loss < best_val_loss:
        with open("model.pt", "wb") as f:
            torch.save(model, f)
        best_val_loss = val_loss
    else:
        lr /= 4.0
with open("model.pt", "rb") as f:
    model = torch.load(f, weights_only=False)
    if args.model in ["RNN_TANH", "LSTM", "GRU"]:
        model.rnn.flatten_parameters()
print(f"test loss {evaluate(val_data):5.4f}")
