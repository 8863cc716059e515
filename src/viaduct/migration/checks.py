"""Check the flags of `viaduct migrate` before any file is read: unknown rules, invalid values, contradictions."""

from __future__ import annotations

import re

from viaduct.cards.cann_options import DUMP_STEPS, PRECISION_MODES, PRECISION_MODES_V2
from viaduct.errors import BadValue, UnknownName
from viaduct.migration.catalogue import find_rules
from viaduct.migration.options import Options

PRESETS = ("resnet-seed",)


def check_options(options: Options) -> None:
    """Raise BadValue or UnknownName for options that are unknown, invalid or contradict each other."""
    for name in (*options.only, *options.skip):
        find_rules(name)
    check_precision(options.precision)
    if options.loop < 1:
        raise BadValue(f"--loop is {options.loop}.", "It counts steps: 1 or more.")
    if options.reduction != "average" and not options.distributed:
        raise BadValue(
            f"--reduction {options.reduction} without --distributed.", "On one device there is nothing to reduce."
        )
    if options.preset and options.preset not in PRESETS:
        raise UnknownName("preset", options.preset, PRESETS)
    if options.dump_step and not options.dump:
        raise BadValue("--dump-step without --dump.", "Give --dump DIR too: where the tensors go.")
    if options.dump_step and not DUMP_STEPS.fullmatch(options.dump_step):
        raise BadValue(f"--dump-step {options.dump_step!r} names no steps.", "Give steps such as 5, 0|5|10 or 3-6.")
    if any(options.profile_points) and not options.profile:
        raise BadValue("--profile-points without --profile.", "Give --profile DIR too: where the profiles go.")
    if options.profile and options.dump:
        raise BadValue("--profile and --dump together.", "Dumping changes the times; do one after the other.")
    check_mode(options)


def check_mode(options: Options) -> None:
    """Raise BadValue for options that the target or the mode does not allow."""
    if options.mode == "patch" and options.to == "any":
        raise BadValue(
            "--mode patch with --to any.",
            "A run-time patch is one vendor's: it turns torch.cuda into that vendor's device.",
            "Give --to npu or --to mlu.",
        )
    for flag, is_given in (
        ("--int32-targets", options.int32_targets),
        ("--start-up", options.start_up),
        ("--reduction sum", options.reduction == "sum"),
        ("--fusion-switch", options.fusion_switch),
    ):
        if is_given and options.to != "npu":
            raise BadValue(f"--to {options.to} with {flag}.", f"{flag} is for the NPU: leave it out, or give --to npu.")
    if options.data_parallel == "report":
        return
    flag_and_value = f"--data-parallel {options.data_parallel}"
    if options.mode == "patch":
        raise BadValue(
            f"--mode patch with {flag_and_value}.",
            "A patch writes one import and rewrites nothing. Leave one of the two out.",
        )
    if options.to == "any":
        raise BadValue(
            f"--to any with {flag_and_value}.",
            "The result must still run unchanged on CUDA. Give --to npu or --to mlu, or do this step first.",
        )


def check_precision(mode: str) -> None:
    """Raise BadValue or UnknownName for a precision mode that CANN does not have."""
    if not mode:
        return
    modes = [part for part in re.split(r"[,\s]+", mode) if part]
    if len(modes) > 1:
        raise BadValue(
            f"--precision {mode!r} names {len(modes)} modes.",
            "The device takes one: a precision_mode or a precision_mode_v2, not both.",
        )
    if mode not in (*PRECISION_MODES, *PRECISION_MODES_V2):
        raise UnknownName(
            "precision mode",
            mode,
            (*PRECISION_MODES, *PRECISION_MODES_V2),
            f"precision_mode: {', '.join(PRECISION_MODES)};",
            f"v2: {', '.join(PRECISION_MODES_V2)}.",
        )
