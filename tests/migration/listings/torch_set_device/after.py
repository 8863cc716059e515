import torch
import torch.npu

CALCULATE_DEVICE = "npu:1"


def main():
    print('devices:', torch.cuda.device_count())


if __name__ == '__main__':
    if 'npu' in CALCULATE_DEVICE:
        torch.npu.set_device(CALCULATE_DEVICE)
    main()
