"""Convolutions, batch norm, dropout; transforms, a configuration module, a schedule."""

import config
import torch
from data import ImageSet, build_transform
from net import SmallNet
from torch import nn
from torch.utils.data import DataLoader


def adjust(optimizer, epoch):
    rate = config.LR * (config.GAMMA ** (epoch // config.PERIOD))
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def validate(loader, net, criterion):
    net.eval()
    losses, hits, count = 0.0, 0, 0
    with torch.no_grad():
        for images, target in loader:
            images = images.cuda(non_blocking=True)
            target = target.cuda(non_blocking=True)
            output = net(images)
            losses += criterion(output, target).item() * images.size(0)
            hits += output.max(1)[1].eq(target).sum().item()
            count += images.size(0)
    return losses / count, hits / count


def main():
    torch.backends.cudnn.benchmark = True
    net = SmallNet(config.CLASSES, dropout=config.DROPOUT).cuda()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05).cuda()
    optimizer = torch.optim.SGD(
        net.parameters(), lr=config.LR, momentum=config.MOMENTUM, weight_decay=config.WEIGHT_DECAY, nesterov=True
    )
    train = DataLoader(ImageSet(36, 1, build_transform(True)), batch_size=config.BATCH, shuffle=True, pin_memory=True)
    val = DataLoader(ImageSet(18, 2, build_transform(False)), batch_size=config.BATCH)
    best = 0.0
    for epoch in range(config.EPOCHS):
        rate = adjust(optimizer, epoch)
        net.train()
        for images, target in train:
            images = images.cuda(non_blocking=True)
            target = target.cuda(non_blocking=True)
            loss = criterion(net(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val_loss, top1 = validate(val, net, criterion)
        if top1 > best:
            best = top1
        print(
            "epoch {} lr {:.5f} loss {:.5f} val {:.5f} top1 {:.4f} best {:.4f}".format(
                epoch, rate, loss.item(), val_loss, top1, best
            )
        )


if __name__ == "__main__":
    main()
