"""Microbenchmarks on this CPU: that both ways are run and timed. Which is faster is the machine's business."""

import torch

from viaduct.profiling.figures import Convolution, MatrixProduct
from viaduct.profiling.microbenchmarks import DeviceMicrobenchmarks, make_pass, make_update

SMALL = Convolution((2, 4, 8, 8), (8, 4, 3, 3), 1, 1, 1, "float32")


def test_a_convolution_that_cannot_be_gives_no_figure_and_a_reason() -> None:
    microbenchmarks = DeviceMicrobenchmarks("cpu")
    assert microbenchmarks.time_layouts(Convolution((2, 4, 8, 8), (8, 5, 3, 3), 1, 1, 1, "float32")) is None
    assert len(microbenchmarks.failures) == 1


def test_a_device_that_is_not_here_gives_no_figure() -> None:
    microbenchmarks = DeviceMicrobenchmarks("mlu")
    assert microbenchmarks.time_layouts(SMALL) is None
    assert microbenchmarks.failures


def test_tensors_too_large_to_measure_give_no_figure() -> None:
    microbenchmarks = DeviceMicrobenchmarks("cpu")
    assert microbenchmarks.time_dtypes(MatrixProduct(1 << 20, 1 << 20, 8, "float32"), "bfloat16") is None
    assert "too many" in microbenchmarks.failures[0]


def test_both_layouts_are_timed_and_random_state_and_threads_stay() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    microbenchmarks = DeviceMicrobenchmarks("cpu", threads=1)
    times = microbenchmarks.time_layouts(SMALL)
    assert microbenchmarks.failures == []
    assert times is not None
    assert min(times) > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_more_work_takes_more_time() -> None:
    microbenchmarks = DeviceMicrobenchmarks("cpu", threads=1)
    small = microbenchmarks.time_dtypes(MatrixProduct(8, 8, 8, "float32"), "float32")
    large = microbenchmarks.time_dtypes(MatrixProduct(512, 512, 512, "float32"), "float32")
    assert small is not None
    assert large is not None
    assert large[0] > small[0]  # 260,000 times the arithmetic


def test_an_update_is_timed_in_both_ways() -> None:
    for kind in ("SGD", "Adam"):
        microbenchmarks = DeviceMicrobenchmarks("cpu", threads=1)
        times = microbenchmarks.time_updates(kind, [16, 1024])
        assert times is not None or microbenchmarks.failures
    make_update("SGD", [4], "cpu", foreach=False)()


def test_channels_last_work_has_channels_last_weights(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    seen = []
    convolve = torch.nn.functional.conv2d

    def watch(image, weight, *arguments):  # type: ignore[no-untyped-def]
        seen.append(image.is_contiguous(memory_format=torch.channels_last))
        return convolve(image, weight, *arguments)

    monkeypatch.setattr("viaduct.profiling.microbenchmarks.functional.conv2d", watch)
    make_pass(SMALL, "cpu", "float32")()
    make_pass(SMALL, "cpu", "float32", torch.channels_last)()
    assert seen == [False, True]
