"""Records of the families: what they say of their networks holds for each of them."""

from __future__ import annotations

import pytest

from viaduct import models
from viaduct.data import references
from viaduct.weights.recognise import build_on_meta

FAMILIES = models.families()


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.tensorflow])
def test_names_in_tensorflow_are_claimed_by_their_own_family_and_no_other(name: str) -> None:
    names = FAMILIES[name].tensorflow
    assert names is not None
    for other in FAMILIES.values():
        if other.tensorflow is not names:
            assert not any(names.apply_to(build_on_meta(variant, 3)) for variant in other.variants)
    claimed = [variant for variant in FAMILIES[name].variants if names.apply_to(build_on_meta(variant, 3))]
    assert claimed
    for variant in claimed:
        layouts = names.layouts(build_on_meta(variant, 3))
        assert names.default_layout in layouts
        sources = [source for link in layouts[names.default_layout] for source in link.variables]
        assert len(set(sources)) == len(sources)
        assert any(source.startswith(names.scope) for source in sources)


@pytest.mark.parametrize("name", FAMILIES)
def test_torchvisions_names_are_for_tensors_of_the_network_one_each(name: str) -> None:
    family = FAMILIES[name]
    assert family.preprocess in references.names()
    assert set(family.peers) <= set(family.variants)
    for variant in family.variants:
        network = build_on_meta(variant, 3)
        names = family.torchvision_names(network) if family.torchvision_names else {}
        assert not names or names.keys() == network.state_dict().keys()
        assert len(set(names.values())) == len(names)
