import torch
import torch_npu


def main():
    print('devices:', torch.npu.device_count())


if __name__ == '__main__':
    main()
