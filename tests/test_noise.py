import numpy as np

from es.noise import Stream, derive_seed, draw, perturb


def test_noise_depends_on_the_seed_alone():
    first, second, other = (np.empty(1000, np.float32) for _ in range(3))
    draw(7, first)
    draw(8, other)
    draw(7, second)
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_noise_is_standard_normal():
    noise = draw(1, np.empty(400_000, np.float32))
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 1) < 0.01
    assert abs((noise**4).mean() - 3) < 0.1


def test_perturb_mirrors_and_copies():
    theta = np.linspace(-1, 1, 1000, dtype=np.float32)
    noise = draw(3, np.empty_like(theta))
    plus, minus, copy = (perturb(theta, 3, sign, 0.1, np.empty_like(theta)) for sign in (1, -1, 0))
    np.testing.assert_allclose(plus, theta + 0.1 * noise, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(plus + minus, 2 * theta, atol=1e-6)
    assert np.array_equal(copy, theta)


def test_seeds_differ_in_every_part_of_their_origin():
    origins = [
        (run, update, stream, index)
        for run in (0, 1)
        for update in range(20)
        for stream in Stream
        for index in range(20)
    ]
    seeds = {derive_seed(*origin) for origin in origins}
    assert len(seeds) == len(origins)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derive_seed(*origins[5]) == derive_seed(*origins[5])
