"""Damage at random: what disks, networks and editors do to files, by the ten thousand."""

from __future__ import annotations

import random


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A copy with one to three injuries."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        injure(damaged, rng)
    return bytes(damaged)


def injure(damaged: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(damaged) + 1)
    span = rng.choice((1, 1, 2, 4, 8, 12, 50))
    kind = rng.randrange(7)
    if kind == 0 and at < len(damaged):
        damaged[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(damaged):
        damaged[at] = rng.choice((0x00, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 2:
        del damaged[at : at + span]
    elif kind == 3:
        damaged[at:at] = rng.randbytes(span)
    elif kind == 4:
        damaged[at : at + span] = b"\xff" * span
    elif kind == 5:
        begin = rng.randrange(len(damaged) + 1)
        damaged[at:at] = damaged[begin : begin + span]
    else:
        del damaged[at:]
