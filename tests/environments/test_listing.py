"""--list-envs."""

import gymnasium

from es.environments.listing import names


def test_environments_are_listed_with_their_settings(program):
    status, out, err = program("--list-envs", "cartpole-v", "Pong", "doorkey")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["CartPole-v1", "configs/CartPole-v1.toml"] in lines
    assert ["ALE/Pong-v5"] in lines
    assert ["PongDeterministic-v4", "configs/PongDeterministic-v4.toml"] in lines
    assert ["minigrid:MiniGrid-DoorKey-5x5-v0", "configs/MiniGrid-DoorKey-5x5-v0.toml"] in lines
    assert "Acrobot" not in out


def test_only_the_newest_versions_are_listed_unless_asked_for():
    found = names(())
    assert {"HalfCheetah-v5", "ALE/Breakout-v5", "CyclicMDP-v0"} <= {*found}
    gymnasium.register("Unversioned", "tests.slow:Slow")
    assert "Unversioned" in names(())
    gymnasium.registry.pop("Unversioned")
    assert not {"HalfCheetah-v4", "Breakout-v4", "BreakoutNoFrameskip-v4"} & {*found}
    assert "HalfCheetah-v4" in names(["halfcheetah"])
    assert "BreakoutDeterministic-v4" in names(["breakout"])


def test_the_environments_of_a_module_are_listed_as_they_are_trained_on(program):
    for _ in range(2):  # the second time, it is imported already
        found = names(["tests.slow:"])
        assert "tests.slow:Slow-v0" in found
        assert not any("strange" in name for name in found)
    assert "tests.slow:Slow-v0" not in names(["tests.slow:patient"])
    for words, complaint in (
        ("nonsense", "--list-envs MODULE:"), ("tests.nowhere:", "cannot be imported")
    ):  # fmt: skip
        status, _, err = program("--list-envs", words)
        assert (status, err.count("\n")) == (2, 1)
        assert complaint in err
