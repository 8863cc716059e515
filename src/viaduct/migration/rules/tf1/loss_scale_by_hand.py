"""Advise on a loss that the script scales itself.

`loss * loss_scale`, with gradients divided by the scale, works on the device. But only NPULossScaleOptimizer notices an
overflow.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("L5", "L7"), category="advice", runs_last=True)


@rule.method("compute_gradients", "minimize")
def advise_scaled_loss(site: Site) -> None:
    """Advise on a loss that is a product with "scale" in one factor."""
    loss = site.argument("loss", 0)
    if isinstance(loss, ast.BinOp) and isinstance(loss.op, ast.Mult):
        factors = [ast.unparse(factor) for factor in (loss.left, loss.right)]
        if any("scale" in factor.lower() for factor in factors):
            site.advise(
                f"{site.text_of(loss)} is scaled by hand and stays so; NPULossScaleOptimizer would also detect "
                "overflow (the vendor's ResNet uses a scale of 512)",
                zh=f"{site.text_of(loss)} 为手工 loss scale,保持不变;NPULossScaleOptimizer 还能检测溢出"
                "(厂商的 ResNet 的 loss scale 为 512)",
                node=loss,
            )
