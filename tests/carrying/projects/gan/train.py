"""Two networks that are trained against each other, each with an optimizer of its own."""

import torch
from torch import nn

LATENT = 4


def make_generator():
    return nn.Sequential(nn.Linear(LATENT, 12), nn.BatchNorm1d(12), nn.ReLU(True), nn.Linear(12, 6), nn.Tanh())


def make_discriminator():
    return nn.Sequential(nn.Linear(6, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1), nn.Sigmoid())


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0.0, 0.2)
    elif isinstance(module, nn.BatchNorm1d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def main():
    device = torch.device("cuda:0")
    generator, discriminator = make_generator().to(device), make_discriminator().to(device)
    generator.apply(init_weights)
    discriminator.apply(init_weights)
    criterion = nn.BCELoss()
    fixed = torch.randn(8, LATENT, device=device)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
    samples = torch.sin(torch.arange(240, dtype=torch.float32)).view(40, 6)
    for number, real in enumerate(samples.split(8)):
        real = real.to(device)
        labels = torch.full((real.size(0), 1), 0.9, device=device)
        discriminator.zero_grad()
        loss_real = criterion(discriminator(real), labels)
        loss_real.backward()
        fake = generator(torch.randn(real.size(0), LATENT, device=device))
        labels.fill_(0.0)
        loss_fake = criterion(discriminator(fake.detach()), labels)
        loss_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        labels.fill_(1.0)
        loss_g = criterion(discriminator(fake), labels)
        loss_g.backward()
        optimizer_g.step()
        print("[%d] d %.5f g %.5f" % (number, (loss_real + loss_fake).item(), loss_g.item()))
        if number % 2 == 0:
            with torch.no_grad():
                print("mean of the fixed samples", generator(fixed).mean().item())


if __name__ == "__main__":
    main()
