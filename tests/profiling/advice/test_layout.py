from dataclasses import replace

from profiling.advice.made_profiles import FixedTimes, advise, convolve, launch, make_profile
from viaduct.profiling.figures import Convolution
from viaduct.profiling.record import Advice, Operator, Profile


def find(profile: Profile, microbenchmarks: FixedTimes | None = None) -> Advice | None:
    return next((advice for advice in advise(profile, microbenchmarks) if advice.name == "layout"), None)


def test_nothing_is_advised_without_a_measurement() -> None:
    assert find(make_profile(operators=[convolve(8000.0)])) is None
    assert find(make_profile(operators=[convolve(8000.0)]), FixedTimes(None)) is None


def test_a_network_in_channels_last_is_no_fault() -> None:
    microbenchmarks = FixedTimes((2000.0, 1000.0))
    assert find(make_profile(operators=[convolve(8000.0, "channels_last")]), microbenchmarks) is None
    assert microbenchmarks.asked == []


def test_convolutions_that_are_as_fast_either_way_are_no_fault() -> None:
    assert find(make_profile(operators=[convolve(8000.0)]), FixedTimes((1000.0, 990.0))) is None


def test_the_gain_is_what_was_measured_per_call() -> None:
    microbenchmarks = FixedTimes((2000.0, 1500.0))
    advice = find(make_profile(operators=[convolve(8000.0, calls=4)]), microbenchmarks)
    assert advice is not None
    assert advice.gain_us == 2000.0
    assert microbenchmarks.asked == [Convolution((16, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1, "float32")]
    assert "20% of a step" in advice.title


def test_no_more_is_claimed_than_the_same_share_of_the_profile() -> None:
    advice = find(make_profile(operators=[convolve(2000.0, calls=1)]), FixedTimes((20_000.0, 10_000.0)))
    assert advice is not None
    assert advice.gain_us == 1000.0


def test_copies_that_only_a_backward_pass_of_torch_makes_are_no_fault() -> None:
    shape = "[16, 64, 28, 28]"
    copy = Operator("aten::contiguous", 6, 1800.0, 30.0, shapes=shape, module="conv", phase="backward")
    assert find(make_profile(operators=[copy])) is None


def test_conversions_between_layouts_are_found_by_their_time() -> None:
    shape = "[16, 64, 28, 28]"
    copy = Operator("aten::contiguous", 6, 1800.0, 30.0, shapes=shape, location="net.py:12", phase="forward")
    advice = find(make_profile(operators=[copy]))
    assert advice is not None
    assert "18% of a step" in advice.title
    assert advice.locations == ("net.py:12",)
    rows = replace(copy, shapes="[16, 64]")
    assert find(make_profile(operators=[rows])) is None  # of matrices that is no layout of images


def test_kernels_that_transpose_are_conversions() -> None:
    kernels = [launch("nchwToNhwcKernel", 900.0, 20, "convolution"), launch("gemm", 8800.0, 20, "matrix product")]
    advice = find(make_profile(device="cuda", kernels=kernels))
    assert advice is not None
    assert advice.gain_us == 900.0
