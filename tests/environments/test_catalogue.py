"""The list of environments."""

from pathlib import Path

from es.environments.catalogue import names


def test_environments_are_listed_with_their_spaces_and_settings(program):
    status, out, err = program("--list-envs", "cartpole-v", "pendulum-v1", "Pong")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    cartpole = ["CartPole-v1", "Box(4)", "Discrete(2)", "MLP", "configs/CartPole-v1.toml"]
    assert cartpole in lines
    assert ["Pendulum-v1", "Box(3)", "Box(1)", "MLP", "configs/Pendulum-v1.toml"] in lines
    assert ["ALE/Pong-v5", "Box(210x160x3)", "Discrete(6)", "Convnet-LSTM"] in lines
    assert "PongDeterministic-v4" in out
    assert "Acrobot" not in out


def test_all_environments_are_listed_by_name_without_being_made(program, monkeypatch):
    monkeypatch.setattr("es.envs.make_env", None)
    status, out, err = program("--list-envs")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["CartPole-v1", "configs/CartPole-v1.toml"] in lines
    assert ["ALE/Pong-v5"] in lines
    assert "--list-envs NAME" in out.splitlines()[-1]


def test_settings_of_ones_own_are_listed_or_left_out(program, monkeypatch):
    monkeypatch.setattr("es.settings.CONFIGS", Path())
    Path("mine.toml").write_text('env-name = "CartPole-v1"')
    Path("nameless.toml").write_text("lr = 0.1")
    status, out, err = program("--list-envs", "cartpole-v1")
    assert (status, err) == (0, "")
    assert "MLP           configs/mine.toml" in out


def test_only_the_newest_versions_are_listed_unless_asked_for():
    found = names(())
    assert "HalfCheetah-v5" in found
    assert "ALE/Breakout-v5" in found
    assert not {"HalfCheetah-v4", "Breakout-v4", "BreakoutNoFrameskip-v4"} & {*found}
    assert "HalfCheetah-v4" in names(["halfcheetah"])
    assert "BreakoutDeterministic-v4" in names(["breakout"])


def test_a_listing_of_nothing_is_an_error(program):
    status, _, err = program("--list-envs", "nonsense")
    assert status == 2
    assert "--list-envs MODULE:" in err


def test_the_environments_of_a_module_are_listed_as_they_are_trained_on(program):
    for _ in range(2):  # the second time, it is imported already
        status, out, err = program("--list-envs", "tests.slow:")
        assert (status, err) == (0, "")
        assert "tests.slow:Slow-v0 " in out
        assert "tests.strange:" not in out
    assert "Slow-v0" not in program("--list-envs", "tests.slow:patient")[1]
    status, _, err = program("--list-envs", "tests.nowhere:")
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot be imported" in err
    Path("leaving.py").write_text("raise SystemExit(0)")
    status, _, err = program("--list-envs", "leaving:")
    assert (status, err.count("\n")) == (1, 1)
