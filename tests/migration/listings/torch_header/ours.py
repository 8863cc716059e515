import torch
import torch_npu
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn

ngpus_per_node = torch.npu.device_count()
