"""Train an image classifier on decoded or on dummy images: one card, all cards of a machine, or several machines.

    python imagenet_ddp.py --dummy --epochs 1 --steps 2 --batch-size 8
    python imagenet_ddp.py /data/imagenet --multiprocessing-distributed --world-size 1 --rank 0 \
        --dist-url tcp://127.0.0.1:23456 --dist-backend nccl
"""

import argparse
import os
import random
import shutil
import time
import warnings

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="ImageNet-style training")
parser.add_argument("data", nargs="?", default="imagenet", help="folder with train.pt and val.pt (default: imagenet)")
parser.add_argument("-a", "--arch", default="small18", choices=["small10", "small18"])
parser.add_argument("-j", "--workers", default=0, type=int, help="data loading workers a process")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--start-epoch", default=0, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int, help="of all GPUs of this node together")
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--wd", default=1e-4, type=float, dest="weight_decay")
parser.add_argument("-p", "--print-freq", default=10, type=int)
parser.add_argument("--resume", default="", type=str, help="path of a checkpoint")
parser.add_argument("-e", "--evaluate", action="store_true")
parser.add_argument("--world-size", default=-1, type=int, help="number of nodes")
parser.add_argument("--rank", default=-1, type=int, help="rank of this node")
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456", type=str)
parser.add_argument("--dist-backend", default="nccl", type=str, help="nccl for cuda, gloo without a card")
parser.add_argument("--seed", default=None, type=int)
parser.add_argument("--gpu", default=None, type=int, help="GPU id to use")
parser.add_argument("--multiprocessing-distributed", action="store_true", help="one process a GPU of this node")
parser.add_argument("--procs", default=2, type=int, help="processes of this node if it has no GPU")
parser.add_argument("--dummy", action="store_true", help="made-up images instead of a folder")
parser.add_argument("--steps", default=0, type=int, help="end an epoch after so many steps (0: do not)")
parser.add_argument("--out", default=".", help="where checkpoints go")

best_acc1 = 0.0


class Block(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + identity)


class SmallResNet(nn.Module):
    def __init__(self, layers, num_classes=10):
        super().__init__()
        planes, blocks = 8, [nn.Conv2d(3, 8, 3, 1, 1, bias=False)]
        for stage, count in enumerate(layers):
            for i in range(count):
                out = 8 * 2**stage
                blocks.append(Block(planes, out, stride=2 if stage and i == 0 else 1))
                planes = out
        self.features = nn.Sequential(*blocks)
        self.fc = nn.Linear(planes, num_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def create_model(arch):
    return SmallResNet({"small10": (1, 1, 1), "small18": (2, 2, 2)}[arch])


class TensorFile(Dataset):
    """Images that were decoded once: a file with a tensor of images and one of labels."""

    def __init__(self, path):
        self.images, self.targets = torch.load(path)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


class DummyImages(TensorFile):
    """The class decides the colour of an image; noise does the rest."""

    def __init__(self, length=512, size=16, classes=10):
        generator = torch.Generator().manual_seed(0)
        self.targets = torch.randint(classes, (length,), generator=generator)
        tint = torch.linspace(-1, 1, classes)[self.targets].view(-1, 1, 1, 1)
        self.images = torch.randn(length, 3, size, size, generator=generator) * 0.5 + tint


def main():
    args = parser.parse_args()
    if args.gpu is not None:
        warnings.warn("You have chosen a specific GPU. This will completely disable data parallelism.", stacklevel=1)
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    ngpus_per_node = torch.cuda.device_count() if torch.cuda.is_available() else args.procs
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * max(args.world_size, 1)
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        main_worker(args.gpu, ngpus_per_node, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
        cudnn.benchmark = False
    if args.gpu is not None:
        print("Use GPU: {} for training".format(args.gpu))
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        if args.multiprocessing_distributed:
            args.rank = max(args.rank, 0) * ngpus_per_node + gpu
        dist.init_process_group(
            backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank
        )
    print("=> creating model '{}'".format(args.arch))
    model = create_model(args.arch)
    if not torch.cuda.is_available():
        print("using CPU, this will be slow")
        if args.distributed:
            args.batch_size = int(args.batch_size / ngpus_per_node)
            model = nn.parallel.DistributedDataParallel(model)
    elif args.distributed:
        # DistributedDataParallel on one device needs its own share of the batch and of the workers.
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
            model.cuda(args.gpu)
            args.batch_size = int(args.batch_size / ngpus_per_node)
            args.workers = int((args.workers + ngpus_per_node - 1) / ngpus_per_node)
            model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        else:
            model.cuda()
            model = nn.parallel.DistributedDataParallel(model)
    elif args.gpu is not None:
        torch.cuda.set_device(args.gpu)
        model = model.cuda(args.gpu)
    else:
        model = torch.nn.DataParallel(model).cuda()

    if torch.cuda.is_available():
        device = torch.device("cuda:{}".format(args.gpu)) if args.gpu is not None else torch.device("cuda")
    else:
        device = torch.device("cpu")
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)

    if args.resume:
        if os.path.isfile(args.resume):
            if args.gpu is None or not torch.cuda.is_available():
                checkpoint = torch.load(args.resume, map_location=device)
            else:
                # Map the model to the given GPU.
                loc = "cuda:{}".format(args.gpu)
                checkpoint = torch.load(args.resume, map_location=loc)
            args.start_epoch = checkpoint["epoch"]
            best_acc1 = checkpoint["best_acc1"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(checkpoint["scheduler"])
            print("=> loaded checkpoint '{}' (epoch {})".format(args.resume, checkpoint["epoch"]))
        else:
            print("=> no checkpoint found at '{}'".format(args.resume))

    if args.dummy:
        print("=> Dummy data is used!")
        train_dataset, val_dataset = DummyImages(512), DummyImages(128)
    else:
        train_dataset = TensorFile(os.path.join(args.data, "train.pt"))
        val_dataset = TensorFile(os.path.join(args.data, "val.pt"))
    train_sampler = DistributedSampler(train_dataset) if args.distributed else None
    train_loader = DataLoader(
        train_dataset,
        batch_size=args.batch_size,
        shuffle=(train_sampler is None),
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        sampler=train_sampler,
    )
    val_loader = DataLoader(val_dataset, batch_size=args.batch_size, shuffle=False, num_workers=args.workers)
    if args.evaluate:
        validate(val_loader, model, criterion, device, args)
        return

    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, device, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if not args.multiprocessing_distributed or args.rank % ngpus_per_node == 0:
            save_checkpoint(
                {
                    "epoch": epoch + 1,
                    "arch": args.arch,
                    "state_dict": model.state_dict(),
                    "best_acc1": best_acc1,
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                },
                is_best,
                args.out,
            )
    if args.distributed:
        dist.destroy_process_group()


def train(train_loader, model, criterion, optimizer, epoch, device, args):
    batch_time, losses, top1 = AverageMeter("Time"), AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        if args.steps and i == args.steps:
            break
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(accuracy(output, target), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0 or args.steps:
            print("Epoch: [{}][{}] loss {!r}".format(epoch, i, loss.item()), losses, top1, sep="\t", flush=True)


def validate(val_loader, model, criterion, device, args):
    losses, top1 = AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f")
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            if torch.cuda.is_available():
                images = images.cuda(args.gpu, non_blocking=True)
                target = target.cuda(args.gpu, non_blocking=True)
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(accuracy(output, target), images.size(0))
    if args.distributed:
        top1.all_reduce()
    print(" * Acc@1 {:.3f}".format(top1.avg))
    return top1.avg


def save_checkpoint(state, is_best, folder):
    filename = os.path.join(folder, "checkpoint.pth.tar")
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, os.path.join(folder, "model_best.pth.tar"))


class AverageMeter:
    """Computes and stores the average and current value."""

    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device=device)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)


def accuracy(output, target):
    with torch.no_grad():
        return (output.argmax(1) == target).float().mean().item() * 100.0


if __name__ == "__main__":
    main()
