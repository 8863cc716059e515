from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    block: int = 8
    vocabulary: int = 11
    layers: int = 2
    heads: int = 2
    width: int = 12
    dropout: float = 0.1


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.heads, self.drop = config.heads, nn.Dropout(config.dropout)
        self.register_buffer("mask", torch.tril(torch.ones(config.block, config.block))[None, None])

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        weights = (q @ k.transpose(-2, -1)) * (1.0 / (k.size(-1) ** 0.5))
        weights = weights.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = self.drop(F.softmax(weights, dim=-1)) @ v
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.block, config.width)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.words.weight = self.head.weight
        self.apply(self.init_weights)

    def init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.1)

    def forward(self, x, targets=None):
        positions = torch.arange(x.size(1), device=x.device)
        hidden = self.words(x) + self.positions(positions)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.head(self.norm(hidden))
        if targets is None:
            return logits[:, -1:], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))

    @torch.no_grad()
    def generate(self, x, count, temperature=0.8, top=3):
        for _ in range(count):
            logits, _ = self(x[:, -self.config.block :])
            logits = logits[:, -1] / temperature
            limit = torch.topk(logits, top).values[:, [-1]]
            logits[logits < limit] = -float("inf")
            x = torch.cat((x, torch.multinomial(F.softmax(logits, dim=-1), 1)), dim=1)
        return x
