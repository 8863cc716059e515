from profiling.advice.made_profiles import advise, make_profile, make_steps, multiply
from viaduct.profiling.record import Advice, Operator, Profile, Sample


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "loader"), None)


def test_a_wait_of_four_percent_is_no_fault() -> None:
    assert find(make_profile(make_steps(data_us=400.0, compute_us=9000.0, loader_wait_us=400.0))) is None


def test_a_wait_shorter_than_a_handover_from_a_worker_is_no_fault() -> None:
    assert (
        find(make_profile(make_steps(data_us=900.0, compute_us=500.0, update_us=100.0, loader_wait_us=900.0))) is None
    )


def test_one_long_wait_at_the_start_of_an_epoch_is_no_fault() -> None:
    steps = make_steps(20, loader_wait_us=50.0)
    stalled = make_steps(1, data_us=900_000.0, loader_wait_us=900_000.0)
    assert find(make_profile([*steps, *stalled])) is None


def test_time_between_steps_in_which_operators_ran_is_not_the_loaders() -> None:
    average = Operator("aten::lerp_", 20, 4800.0, 4800.0, phase="other", location="train.py:60")
    assert find(make_profile(make_steps(data_us=5000.0, loader_wait_us=20.0), operators=[average])) is None


def test_time_between_steps_is_not_judged_without_operators() -> None:
    assert find(make_profile(make_steps(data_us=5000.0))) is None


def test_batches_from_a_generator_are_found_by_the_time_that_nothing_accounts_for() -> None:
    advice = find(make_profile(make_steps(data_us=15_000.0), operators=[multiply(8500.0)]))
    assert advice is not None
    assert "60% of each step passes before the forward pass" in advice.title
    assert "num_workers=2" in advice.action


def test_a_short_wait_for_workers_is_no_fault() -> None:
    steps = make_steps(data_us=10_000.0, compute_us=119_000.0, update_us=1000.0, loader_wait_us=10_000.0)
    assert find(make_profile(steps, device="cuda", facts={"workers": 1})) is None


def test_the_time_of_a_worker_is_an_upper_bound() -> None:
    steps = make_steps(data_us=60_000.0, compute_us=79_000.0, update_us=1000.0, loader_wait_us=60_000.0)
    advice = find(make_profile(steps, device="cuda", facts={"workers": 1}))
    assert advice is not None
    assert "One worker prepares the data of a step in at most 140 ms" in advice.evidence[1]


def test_the_rank_that_waits_longest_is_named_and_no_mean_over_ranks() -> None:
    steps = [
        *make_steps(rank=0, data_us=100.0, compute_us=29_000.0, loader_wait_us=100.0),
        *make_steps(rank=1, data_us=20_100.0, loader_wait_us=20_000.0),
    ]
    advice = find(make_profile(steps, device="cuda"))
    assert advice is not None
    assert "67% of each step on rank 1 waits for data" in advice.title
    assert "A step on rank 1 waits 20 ms" in advice.evidence[0]


def test_ranks_that_prepare_data_without_a_loader_are_not_averaged() -> None:
    steps = [*make_steps(rank=0, compute_us=69_000.0), *make_steps(rank=1, data_us=60_100.0)]
    advice = find(make_profile(steps, operators=[multiply(8500.0)], device="cuda"))
    assert advice is not None
    assert "86% of each step on rank 1 passes before the forward pass" in advice.title
    assert "60.1 ms on rank 1" in advice.evidence[0]


def test_the_number_of_workers_follows_from_load_and_compute_time() -> None:
    steps = make_steps(data_us=20_000.0, compute_us=9000.0, update_us=1000.0, loader_wait_us=20_000.0)
    advice = find(make_profile(steps, device="cuda"))
    assert advice is not None
    assert "67%" in advice.title
    assert "num_workers=2 (now 0)" in advice.action  # 20 ms of loading against 10 ms of computing
    assert advice.gain_us == 19_000.0  # all of the wait but the handover


def test_on_the_cpu_loading_and_computing_share_the_cores() -> None:
    steps = make_steps(data_us=20_000.0, compute_us=9000.0, update_us=1000.0, loader_wait_us=20_000.0)
    advice = find(make_profile(steps))
    assert advice is not None
    assert advice.gain_us == 20_000.0 - 20_000.0 / 4 - 1000.0
    assert any("mostly waits for a disk" in sentence for sentence in advice.evidence)


def test_cores_that_idle_leave_room_for_workers() -> None:
    steps = make_steps(data_us=20_000.0, compute_us=9000.0, update_us=1000.0, loader_wait_us=20_000.0)
    samples = [Sample(0.0, {"cpu 0 %": 60.0, "cpu 1 %": 20.0, "memory MiB": 900.0})]
    advice = find(make_profile(steps, samples=samples))
    assert advice is not None
    assert advice.gain_us == 19_000.0


def test_a_second_worker_may_help_although_the_cores_are_busy() -> None:
    steps = make_steps(data_us=6000.0, compute_us=13_000.0, update_us=1000.0, loader_wait_us=6000.0)
    advice = find(make_profile(steps, facts={"workers": 1}))
    assert advice is not None
    assert "num_workers=2 (now 1)" in advice.action


def test_a_short_wait_that_workers_may_not_shorten_is_no_fault() -> None:
    steps = make_steps(data_us=1600.0, compute_us=17_400.0, update_us=1000.0, loader_wait_us=1600.0)
    assert find(make_profile(steps, facts={"workers": 1})) is None


def test_no_more_workers_than_cores_are_advised() -> None:
    steps = make_steps(data_us=90_000.0, compute_us=9000.0, update_us=1000.0, loader_wait_us=90_000.0)
    advice = find(make_profile(steps, device="cuda"))
    assert advice is not None
    assert "num_workers=4" in advice.action
    assert "9 would hide all" in advice.action
    assert advice.gain_us == 100_000.0 - 90_000.0 / 4 - 1000.0


def test_ranks_of_one_machine_share_its_cores() -> None:
    steps = make_steps(data_us=90_000.0, compute_us=9000.0, update_us=1000.0, loader_wait_us=90_000.0)
    advice = find(make_profile(steps, device="cuda", facts={"ranks": 2}))
    assert advice is not None
    assert "num_workers=2" in advice.action


def test_workers_that_are_as_many_as_the_cores_are_not_multiplied() -> None:
    steps = make_steps(data_us=20_000.0, loader_wait_us=20_000.0)
    advice = find(make_profile(steps, facts={"workers": 4}))
    assert advice is not None
    assert "make a batch cheaper" in advice.action
    assert advice.changes == {}


def test_waits_that_come_every_fourth_step_count() -> None:
    steps = [*make_steps(15, loader_wait_us=0.0), *make_steps(5, data_us=40_000.0, loader_wait_us=40_000.0)]
    advice = find(make_profile(steps, device="cuda", facts={"workers": 2}))
    assert advice is not None
    assert "num_workers=4 (now 2)" in advice.action


def test_the_data_tail_of_an_npu_is_a_wait_for_data() -> None:
    advice = find(make_profile(make_steps(data_us=5000.0), device="npu", kind="msprof"))
    assert advice is not None
    assert "34% of each step waits for data" in advice.title


def test_the_npu_with_the_longest_data_tail_is_named() -> None:
    steps = [*make_steps(rank=0), *make_steps(rank=1, data_us=9000.0)]
    advice = find(make_profile(steps, device="npu", kind="msprof"))
    assert advice is not None
    assert "of each step on rank 1 waits for data" in advice.title


def test_a_recipe_can_try_the_number_of_workers() -> None:
    steps = make_steps(data_us=20_000.0, loader_wait_us=20_000.0)
    advice = find(make_profile(steps, kind="recipe", facts={"workers": 1}))
    assert advice is not None
    assert advice.changes == {"data.workers": "4"}
    assert "data.workers=4 (now 1)" in advice.action
