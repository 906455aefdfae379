"""What a sweep searches."""

from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from es import sweep
from es.config import Config
from es.errors import UsageError
from es.sweeps.space import fit_space, read_space
from es.sweeps.trial import trial_settings
from tests.sweeps.common import CARTPOLE


def test_a_space_is_read():
    Path("space.toml").write_text(
        "[lr]\nlow = 0.01\nhigh = 1\nlog = true\n[n]\nlow = 10\nhigh = 30\nstep = 10\n"
        "[hidden-sizes]\nchoices = [[], [16]]\n[obs-norm]\nchoices = [true, false]\n"
    )
    assert read_space("space.toml", "it") == {
        "lr": FloatDistribution(0.01, 1.0, log=True),
        "n": IntDistribution(10, 30, step=10),
        "hidden_sizes": CategoricalDistribution(("[]", "[16]")),
        "obs_norm": CategoricalDistribution((True, False)),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no setting"),
        ("lr = 0.1", "[lr] must be a table with low and high"),
        ("[lr]\nlow = 0.1\nhigh = 1.0\nlogg = true", "nothing else"),
        ("[lr]\nlow = 1.0\nhigh = 0.1", "`low <= high` must hold"),
        ("[lr]\nlow = 'a'\nhigh = 'b'", "lr = 'a' must be a number"),
        ("[lrr]\nchoices = [1.0]", "unknown setting 'lrr'"),
        ("[workers]\nchoices = [1]", "workers cannot be searched"),
        ("[activation]\nlow = 'relu'\nhigh = 'tanh'", "no numbers"),
        ("[activation]\nchoices = ['gelu']", "'gelu' must be 'selu'"),
        ("[shaping]\nchoices = ['nes', 3]", "shaping = 3 must be"),
        ("[lr", "not valid TOML"),
    ],
)
def test_a_wrong_space_is_named(text, words):
    Path("space.toml").write_text(text)
    with pytest.raises(UsageError, match=r"^--space space.toml: ") as error:
        read_space("space.toml", "--space space.toml")
    assert words in str(error.value)


def test_what_is_given_and_what_is_not_the_networks_is_not_searched():
    shipped = read_space(str(sweep.SHIPPED), "sweep.toml")
    assert fit_space(shipped, set(), "mlp") == shipped
    assert shipped.keys() - fit_space(shipped, {"lr"}, "mlp").keys() == {"lr"}
    left_out = shipped.keys() - fit_space(shipped, {"momentum", "init"}, "mlp").keys()
    assert left_out == {"optimizer", "hidden_sizes"}  # which these need
    left_out = shipped.keys() - fit_space(shipped, set(), "convlstm").keys()
    assert left_out == {"hidden_sizes", "activation"}


def test_what_a_file_says_of_a_single_run_is_not_the_trials():
    lines = ('run-dir = "old"', "save-every = 1", "video-every = 2", "workers = 3")
    Path("base.toml").write_text("\n".join(lines))
    _, base, _ = sweep.read_flags([*map(str, CARTPOLE), "--config", "base.toml"])
    assert (base.run_dir, base.save_every, base.video_every) == (None, None, None)
    assert base.workers == 0


def test_a_trial_drops_what_its_parameters_contradict():
    base = Config(optimizer="clipup", max_speed=0.2, init="zero", hidden_sizes=(), sigma=0.3)
    trial = trial_settings(base, {"optimizer": "adam", "lr": 0.1, "hidden_sizes": "[16]"})
    assert (trial.optimizer, trial.lr, trial.max_speed) == ("adam", 0.1, None)
    assert (trial.hidden_sizes, trial.init, trial.sigma) == ((16,), "torch", 0.3)
