"""Networks of the user's own that do not fit, or fail."""

import numpy as np
import pytest

from es.errors import MisfitError
from tests.networks.test_custom import own

PLAIN = ("--env-name", "CartPole-v1", "--net", "tests.nets:Plain", "--n", 4, "--seed", 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--net", "tests.nets:Rich"), "--net tests.nets:"),
        (
            ("--net", "tests.nets:Plain", "--net-kwargs", "width=8"),
            "width=8 differs from the checkpoint's nothing",
        ),
        (("--net", "tests.nets:Plain", "--env-name", "Acrobot-v1"), "linear1.weight"),
    ],
)
def test_the_network_of_a_checkpoint_must_match(train, program, flags, words):
    path = train(*PLAIN, "--max-gradient-updates", 1)
    status, _, err = program(
        "--restore", path, "--max-gradient-updates", 2, "--override", *flags
    )  # fmt: skip
    assert status == 2
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--net Plain", "--net 'Plain' must be MODULE:CLASS"),
        ("--net no_such:Plain", "--net no_such:Plain: cannot import no_such"),
        ("--net tests.nets:Plan", "has no such class; did you mean Plain?"),
        ("--net tests.nets:word", "has no such class"),
        ("--net tests.nets:no_module", "a torch.nn.Module, not str"),
        (
            "--net tests.nets:Plain --net-kwargs depth=3",
            "depth=3: cannot be made as CLASS(observation_space, action_space) (TypeError",
        ),
        ("--net tests.nets:Plain --net-kwargs extra=1", r"the shape (3,); these"),
        (
            "--net tests.nets:Failing --net-kwargs place=forward",
            "cannot be played by forward(observation, state) (KeyError",
        ),
        ("--net tests.nets:Failing --net-kwargs place=text", "returns str; these"),
        ("--net tests.nets:Failing --net-kwargs place=frozen", "none to train"),
        ("--net tests.nets:Failing --net-kwargs place=reserved", "optimizer.weight"),
        ("--net tests.nets:Plain --hidden-sizes 8", "--hidden-sizes 8 applies only to the program"),
        ("--net tests.nets:Plain --net-kwargs width", "--net-kwargs width must be arguments"),
        ("--net tests.nets:Plain --init zero", "--init zero"),
        ("--net tests.nets:Parts --obs-norm --env-name tests.strange:Scene-v0", "to the Dict"),
        ("--net tests.nets:Grid --obs-norm --env-name PongDeterministic-v4", "or image"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(program, flags, words, tmp_path):
    status, _, err = program("--env-name", "CartPole-v1", "--workers", 0, *flags.split())
    assert status == 2
    assert words in err.splitlines()[0]
    assert err.startswith("error: --")
    assert not list(tmp_path.iterdir())


def test_a_network_that_fails_in_an_episode_is_shown_by_the_users_lines(program):
    flags = ("--net", "tests.nets:Failing", "--net-kwargs", "place=later", "--workers", 0)
    status, _, err = program("--env-name", "CartPole-v1", *flags)
    assert status == 1
    assert "KeyError: 'boom'" in err
    assert "nets.py" in err
    assert "custom.py" not in err
    assert "torch" not in err


@pytest.mark.parametrize("wrong", [np.zeros(3), [0.0] * 3, "text", None])
def test_an_observation_that_does_not_fit_is_an_error(wrong):
    policy = own("Plain")
    actor = policy.recipe.make_actor()
    actor.bind(policy.theta)
    with pytest.raises(MisfitError, match=r"shape \(4,\)"):
        actor.act(wrong)
