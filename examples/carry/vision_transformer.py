"""A small vision transformer with MultiheadAttention and TransformerEncoder, mixup, an averaged model and workers."""

import argparse
import time

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--batch-size", default=8, type=int)
parser.add_argument("--workers", default=1, type=int)
parser.add_argument("--lr", default=1e-3, type=float)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--gpu", default=0, type=int)


class Attention(nn.Module):
    def __init__(self, dim, heads, attn_drop=0.1):
        super().__init__()
        self.heads, self.drop = heads, attn_drop
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop if self.training else 0.0)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads, drop_path):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(approximate="tanh"), nn.Linear(2 * dim, dim))
        self.drop_path = drop_path

    def keep(self, x):
        if not self.training or self.drop_path == 0:
            return x
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.drop_path)
        return x * mask.div_(1 - self.drop_path)

    def forward(self, x):
        x = x + self.keep(self.attn(self.norm1(x)))
        return x + self.keep(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    def __init__(self, size=16, patch=4, dim=24, depth=2, heads=3, classes=5):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads, 0.1) for _ in range(depth)])
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.pool = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        x = self.encoder(self.blocks(x))
        x, _ = self.pool(x[:, :1], x, x, need_weights=False)
        return self.head(x[:, 0])


def mixup(images, target, classes, alpha=0.8):
    lam = torch.distributions.Beta(alpha, alpha).sample().item()
    order = torch.randperm(images.size(0), device=images.device)
    target = F.one_hot(target, classes).float()
    return lam * images + (1 - lam) * images[order], lam * target + (1 - lam) * target[order]


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    cudnn.benchmark = True
    torch.cuda.set_device(args.gpu)
    model = VisionTransformer().cuda(args.gpu)
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    decay = [p for p in model.parameters() if p.ndim > 1]
    optimizer = torch.optim.AdamW([{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * 4)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
    labels = torch.randint(0, 5, (32,))
    images = torch.randn(32, 3, 16, 16) + labels.view(-1, 1, 1, 1).float()
    loader = DataLoader(
        TensorDataset(images, labels), args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True
    )
    for epoch in range(args.epochs):
        model.train()
        end = time.time()
        for i, (image, target) in enumerate(loader):
            image = image.cuda(args.gpu, non_blocking=True)
            target = target.cuda(args.gpu, non_blocking=True)
            mixed, soft = mixup(image, target, 5)
            with torch.cuda.amp.autocast(enabled=args.amp):
                output = model(mixed)
                loss = F.cross_entropy(output, soft, label_smoothing=0.1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            averaged.update_parameters(model)
            torch.cuda.synchronize()
            print(f"Epoch [{epoch}][{i}] Loss {loss.item():.4f} Acc {accuracy(output, target)[0].item():.1f}")
        print(f"epoch time {time.time() - end:.1f} memory {torch.cuda.max_memory_allocated() // 1024} KiB")
        averaged.eval()
        with torch.no_grad():
            output = averaged(images.cuda(args.gpu))
            scores = accuracy(output, labels.cuda(args.gpu), (1, 2))
            print(f"val acc {scores[0].item():.1f} {scores[1].item():.1f}")
    torch.save(averaged.module.state_dict(), "vit.pth")


if __name__ == "__main__":
    main()
