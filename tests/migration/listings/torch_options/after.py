import torch


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    # args.gpu = gpu
    args.gpu = None

    model = models.__dict__[args.arch]()

    if args.distributed:
        # For multiprocessing distributed, DistributedDataParallel constructor
        # should always set the single device scope
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
