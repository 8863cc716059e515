def normalize(images):
    mean = images.mean(dim=0, keepdim=True)
    deviation = images.std(dim=0, keepdim=True)
    return (images - mean) / (deviation + 1e-3)


def accuracy(output, labels):
    guessed = output.argmax(dim=1)
    return (guessed == labels).float().mean().item() * 100
