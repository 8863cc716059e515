"""Damage at random: what disks, networks and editors do to files, by the ten thousand."""

from __future__ import annotations

import random


def mutate(content: bytes, chance: random.Random) -> bytes:
    """A copy with one to three injuries."""
    damaged = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        injure(damaged, chance)
    return bytes(damaged)


def injure(damaged: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(damaged) + 1)
    span = chance.choice((1, 1, 2, 4, 8, 12, 50))
    kind = chance.randrange(7)
    if kind == 0 and at < len(damaged):
        damaged[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(damaged):
        damaged[at] = chance.choice((0x00, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    elif kind == 2:
        del damaged[at : at + span]
    elif kind == 3:
        damaged[at:at] = chance.randbytes(span)
    elif kind == 4:
        damaged[at : at + span] = b"\xff" * span
    elif kind == 5:
        begin = chance.randrange(len(damaged) + 1)
        damaged[at:at] = damaged[begin : begin + span]
    else:
        del damaged[at:]
