import torch
import torch.npu
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn

CALCULATE_DEVICE = "npu:1"
ngpus_per_node = torch.cuda.device_count()
