import torch


def main():
    print('devices:', torch.cuda.device_count())


if __name__ == '__main__':
    main()
