from es.algorithm.episode_limit import adaptive_cap, variable_cap


def test_the_variable_cap_is_twice_the_mean_of_the_batch():
    assert variable_cap([3, 4, 8], most=100) == 10
    assert variable_cap([3, 4, 8], most=7) == 7
    assert variable_cap([0], most=100) == 1


def test_the_adaptive_cap_is_twice_the_mean_so_far():
    assert adaptive_cap([10, 20, 30], 1000, mean=25.4, most=5000) == 50
    assert adaptive_cap([10, 20, 30], 1000, mean=4000, most=5000) == 5000
    assert adaptive_cap([1], 1000, mean=0.2, most=5000) == 1


def test_the_adaptive_cap_grows_when_more_than_a_quarter_reach_it():
    assert adaptive_cap([40, 40, 10, 10], 40, mean=15, most=5000) == 60
    assert adaptive_cap([40, 10, 10, 10], 40, mean=15, most=5000) == 30
    assert adaptive_cap([40, 40, 40, 40], 40, mean=50, most=5000) == 100
    assert adaptive_cap([40, 40, 40, 40], 40, mean=15, most=50) == 50
