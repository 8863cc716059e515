"""Check of all variants of an operator against the default."""

from __future__ import annotations

from viaduct.tuning.measuring import VariantTimer
from viaduct.tuning.operators import list_kinds
from viaduct.tuning.signature import Signature


def find_wrong_variants(signature: Signature) -> dict[str, str]:
    """Return the variants whose values are further from float64 than the default's allow, with their errors."""
    kind = list_kinds()[signature.kind]
    space = kind.make_space(signature, "cpu", False)
    assert space.size > 1
    timer = VariantTimer("cpu", list_kinds())
    errors = {str(point): timer.check_values(signature, point, space.default) for point in space.points()}
    return {point: error for point, error in errors.items() if error}
