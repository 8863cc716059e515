import time

import torch
import torch.nn as nn


def train(train_loader, model, criterion, args, data_time, end):
    for i, (images, target) in enumerate(train_loader):
        # measure data loading time
        data_time.update(time.time() - end)

        if args.gpu is not None:
            images = images.cuda(args.gpu, non_blocking=True)
        if torch.cuda.is_available():
            target = target.cuda(args.gpu, non_blocking=True)

        # compute output
        output = model(images)
        loss = criterion(output, target)


def main_worker(train_loader, model, args, data_time):
    criterion = nn.CrossEntropyLoss()
    train(train_loader, model, criterion, args, data_time, time.time())
