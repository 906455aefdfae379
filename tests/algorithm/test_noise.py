import math

import numpy as np

from es.algorithm.noise import (
    WORTH_THREADS,
    Stream,
    derive_seeds,
    draw,
    weighted_sum,
)  # fmt: skip


def test_noise_is_standard_normal():
    noise = draw(1, np.empty(400_000, np.float32))
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 1) < 0.01
    assert abs((noise**4).mean() - 3) < 0.1


def test_a_weighted_sum_runs_in_order_with_any_number_of_threads():
    size = WORTH_THREADS
    weights = [(seed, 10.0**-seed) for seed in range(7)]  # whose order shows in the last bits
    expected = np.zeros(size, np.float32)
    for seed, weight in weights:
        expected += draw(seed, np.empty(size, np.float32)) * np.float32(weight)
    for threads in (1, 2, 3, 16):
        assert np.array_equal(weighted_sum(weights, size, threads=threads), expected)
    assert not weighted_sum([], size, threads=2).any()


def test_a_second_weight_sums_the_squares_less_1_too():
    size = WORTH_THREADS
    weights = [(seed, math.sin(seed), math.cos(seed)) for seed in range(7)]
    expected = np.zeros((2, size), np.float32)
    for seed, weight, second in weights:
        noise = draw(seed, np.empty(size, np.float32))
        expected[0] += noise * np.float32(weight)
        expected[1] += (noise**2 - 1) * np.float32(second)
    for threads in (1, 3):
        assert np.array_equal(weighted_sum(weights, size, threads=threads), expected)


def test_a_fraction_of_the_noise_is_the_rest_of_it_set_to_0():
    whole, part, other = (np.empty(10_000, np.float32) for _ in range(3))
    draw(7, whole)
    draw(7, part, 0.3)
    draw(8, other, 0.3)
    changed = part != 0
    assert abs(changed.mean() - 0.3) < 0.02
    assert np.array_equal(part[changed], whole[changed])
    assert (changed != (other != 0)).any()
    total = weighted_sum([(7, 2.0), (8, 0.5)], 10_000, fraction=0.3)
    np.testing.assert_allclose(total, 2 * part + 0.5 * other, rtol=1e-6)


def test_seeds_differ_in_every_part_of_their_origin():
    origins = [(run, update, stream) for run in (0, 1) for update in range(20) for stream in Stream]
    seeds = [seed for origin in origins for seed in derive_seeds(*origin, 20)]
    assert len(set(seeds)) == len(seeds) == 20 * len(origins)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_no_update_has_a_seed_twice_however_many_are_asked_for():
    """Update 32 of this run does among the first 20,000 that NumPy draws, as most updates do."""
    sequence = np.random.SeedSequence((0, 32, int(Stream.PERTURBATION)))
    drawn = (sequence.generate_state(20_000) >> 1).tolist()
    seeds = derive_seeds(0, 32, Stream.PERTURBATION, 20_000)
    assert len(set(drawn)) < len(set(seeds)) == len(seeds)
    for count in (1, 99, len(set(drawn))):
        assert derive_seeds(0, 32, Stream.PERTURBATION, count) == seeds[:count]
