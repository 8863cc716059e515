"""Names of torch's mixed precision, such as `torch.autocast` and `torch.cuda.amp.GradScaler`."""

AUTOCAST_NAMES = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
SCALER_NAMES = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
CUSTOM_DECORATORS = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")

AMP = "torch.cuda.amp"
CUDA_AMP_NAMES = {
    **dict.fromkeys((f"{AMP}.autocast", f"{AMP}.autocast_mode.autocast"), "autocast"),
    **dict.fromkeys((f"{AMP}.GradScaler", f"{AMP}.grad_scaler.GradScaler"), "GradScaler"),
    **{f"{AMP}.{name}": f"amp.{name}" for name in ("custom_fwd", "custom_bwd")},
    **{f"{AMP}.autocast_mode.{name}": f"amp.{name}" for name in ("custom_fwd", "custom_bwd")},
}
"""Qualified name in torch.cuda.amp -> name in the helper of `--to any` (`accelerator.autocast`)."""
