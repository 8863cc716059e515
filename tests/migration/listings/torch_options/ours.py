import torch
import torch_npu


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu

    model = models.__dict__[args.arch]()

    if not torch.npu.is_available():
        print('using CPU, this will be slow')
    elif args.distributed:
        # For multiprocessing distributed, DistributedDataParallel constructor
        # should always set the single device scope
        if args.gpu is not None:
            torch.npu.set_device(args.gpu)
