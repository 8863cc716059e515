"""Give up root's right to read and enter everything, so that permissions mean something to tests that run as root."""

from __future__ import annotations

import ctypes
import os
import struct

DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2  # <linux/capability.h>
CAPSET, DROP_FROM_BOUNDING = {"x86_64": 126, "aarch64": 91}, 24
VERSION_3 = 0x20080522


def drop_file_privileges() -> None:
    """Let the modes of files hold for this process and for what it starts; for all others but root they do anyway."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        libc.prctl(DROP_FROM_BOUNDING, capability, 0, 0, 0)
    with open("/proc/self/status") as file:
        lines = dict(line.split(":\t", 1) for line in file)
    kept = ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    effective, permitted, inherited = (int(lines[name], 16) & kept for name in ("CapEff", "CapPrm", "CapInh"))
    header = struct.pack("=Ii", VERSION_3, 0)
    halves = [value >> shift & 0xFFFFFFFF for shift in (0, 32) for value in (effective, permitted, inherited)]
    if libc.syscall(CAPSET[os.uname().machine], header, struct.pack("=6I", *halves)):
        raise OSError(ctypes.get_errno(), "capset")
