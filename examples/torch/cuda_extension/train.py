"""A network whose activation is a CUDA kernel of its own, where it was built; else the same formula in plain torch.

python setup.py build_ext --inplace && python train.py
python train.py --steps 2                                 # no compiler: plain torch
"""

import argparse

import torch
from torch import nn
from torch.autograd import Function

try:
    import scaled_swish
except ImportError:
    scaled_swish = None

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ScaledSwishFunction(Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.scale = scale
        if x.is_cuda and scaled_swish is not None:
            return scaled_swish.forward(x, scale)
        return x * torch.sigmoid(scale * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if grad.is_cuda and scaled_swish is not None:
            return scaled_swish.backward(grad.contiguous(), x, ctx.scale), None
        s = torch.sigmoid(ctx.scale * x)
        return grad * s * (1 + ctx.scale * x * (1 - s)), None


class ScaledSwish(nn.Module):
    def __init__(self, scale=1.5):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return ScaledSwishFunction.apply(x, self.scale)


def check_gradient():
    """The formula of the gradient against finite differences; those need doubles."""
    x = torch.randn(4, 5, dtype=torch.double, device="cpu", requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ScaledSwishFunction.apply(x, 1.5), (x,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    print("kernel:", "built" if scaled_swish is not None else "not built, plain torch is used")
    check_gradient()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), ScaledSwish(), nn.Linear(32, 32), ScaledSwish(), nn.Linear(32, 1))
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        points = torch.rand(args.batch_size, 2, device=device) * 2 - 1
        inside = (points.pow(2).sum(1, keepdim=True) < 0.5).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(points), inside)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.4f}")
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
