import numpy as np

from es.kernels import images


def test_shrinking_a_screen_that_changes_here_and_there():
    rng = np.random.default_rng(1)
    first = np.array([0, 2, 4], np.int64)
    taps = rng.random(12, dtype=np.float32)
    table = rng.random(256, dtype=np.float32)
    screen = rng.integers(0, 255, (8, 8), dtype=np.uint8)
    seen = ~screen
    rows, image = np.empty(24, np.float32), np.empty(9, np.float32)
    for step in range(20):
        assert images.shrink(screen, seen, table, first, taps, rows, image)
        matrix = np.zeros((3, 8))
        for i in range(3):
            matrix[i, first[i] : first[i] + 4] = taps[4 * i : 4 * i + 4]
        expected = matrix @ table[screen].astype(np.float64) @ matrix.T
        np.testing.assert_allclose(image.reshape(3, 3), expected, rtol=1e-5)
        screen[step % 8, rng.integers(8)] = rng.integers(0, 255)
    table[255] = -1e6
    screen[3, 3] = 255
    assert not images.shrink(screen, seen, table, first, taps, rows, image)
