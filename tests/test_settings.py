"""Sources of settings: flags, files, keywords, checkpoints, and all of them together."""

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, TimeLimit

from es import learn, load_policy
from es.checkpoint import Checkpoint, save
from es.config import FIELDS, Config, flag
from es.errors import RunError, UsageError
from es.settings import (
    combine,
    errors_in_keywords,
    from_argv,
    from_keywords,
    read_config,
    read_toml,
    resolve,
    write_toml,
)
from tests.awful import Awful
from tests.processes import ROOT, run_python

CLIPUP = {"optimizer": "clipup", "max_speed": 0.3}
HERE: dict[str, Any] = {
    "env_name": "CartPole-v1",
    "n": 4,
    "seed": 1,
    "small_net": True,
    "silent": True,
    "workers": 0,
    "max_gradient_updates": 1,
}


def parse(words: str) -> Config:
    return combine(from_argv(words.split()), {})


def test_flags_are_read():
    config = parse(
        "--env_name CartPole-v1 --small-net --useAdam --n 10 --lr 0.01 --workers auto --seed 7 "
        "--target-return -5.5 --reward-shift -1e-3 --run-dir=here --no-variable-ep-len "
        "--hidden-sizes --max-frames None"
    )
    assert (config.env_name, config.small_net, config.optimizer) == ("CartPole-v1", True, "adam")
    assert (config.n, config.lr, config.workers, config.seed) == (10, 0.01, "auto", 7)
    assert (config.target_return, config.reward_shift, config.run_dir) == (-5.5, -1e-3, "here")
    assert (config.hidden_sizes, config.max_frames) == ((), None)
    assert parse("--workers 3").workers == 3
    config = parse("--env-wrapper a.b:C d=1 --env-kwargs x=1 --env_wrapper e:F --env-kwargs=y=--z")
    assert config.env_wrapper == ("a.b:C", "d=1", "e:F")
    assert config.env_kwargs == ("x=1", "y=--z")


def test_a_default_that_is_given_is_there_for_the_setting_that_needs_it():
    assert parse("--lr-schedule linear --max-gradient-updates 100000").lr_schedule == "linear"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seed 1.5", "--seed: '1.5' must be a whole number"),
        ("--workers many", "--workers: 'many' must be a whole number or 'auto'"),
        (
            "--hidden-sizes 64,64",
            "--hidden-sizes: '64,64' must be a list of whole numbers, separated by spaces",
        ),
        ("--sampling a", "--sampling: 'a' must be 'antithetic' or 'gaussian'"),
        ("--n", "--n: expected one argument"),
        ("--no-small-net yes", "unexpected argument 'yes'; see --help"),
        ("--sigma-mim 3", "unknown flag --sigma-mim; did you mean --sigma-min?"),
        ("--learning_rate=3", "unknown flag --learning-rate; did you mean --lr?"),
        ("--n 4 --no-test", "unknown flag --no-test; did you mean --test?"),
        ("--zzz", "unknown flag --zzz; see --help"),
        ("--episodes 3", "--episodes applies only with --test. Give both, or neither"),
        ("--obs-clip 0", "--obs-clip applies only with --obs-norm. Give both, or neither"),
        (
            "--lr-schedule linear",
            "--lr-schedule applies only with --max-gradient-updates. Give both, or neither",
        ),
        ("--ray-timeout 5", "--ray-timeout applies only with --ray. Give both, or neither"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line(arguments, message, capfd):
    with pytest.raises(UsageError) as raised:
        parse(arguments)
    assert str(raised.value) == message
    assert capfd.readouterr() == ("", "")


def test_help_is_grouped_complete_and_light():
    """It imports neither torch nor gymnasium, and so answers at once."""
    program = (
        "import sys; from es.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )
    result = run_python(program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("[]\n")
    for name in FIELDS:
        found = re.search(rf"^  (--\S+, )?{flag(name)}[ ,\n]", result.stdout, re.MULTILINE)
        assert bool(found) == (name != "phase")  # tables are in files only
    assert "  python -m es --config CartPole-v1\n" in result.stdout
    for group in ("task", "algorithm", "ending", "evaluation", "run", "watching"):
        assert f"{group} flags:" in result.stdout


@pytest.mark.parametrize(
    ("started", "name"),
    [("/usr/bin/es", "es"), (str(ROOT / "main.py"), "main.py"), ("/my/main.py", "python -m es")],
)
def test_the_help_text_calls_the_program_as_it_was_started(started, name, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", [started])
    with pytest.raises(SystemExit):
        parse("--help")
    assert f"usage: {name} " in capfd.readouterr().out


def test_later_layers_win():
    file = {"lr": 2.0, "optimizer": "adam", "env_name": "A", "workers": "auto"}
    config = combine(from_argv(["--env-name", "B"]), file, {"sigma": 0.5, "lr": 0.3})
    assert (config.sigma, config.lr, config.optimizer) == (0.5, 2.0, "adam")
    assert (config.env_name, config.workers, config.n) == ("B", "auto", 40)
    assert combine(from_argv(["--useAdam"]), {"optimizer": "adamw"}).optimizer == "adam"


@pytest.mark.parametrize(
    ("flags", "file", "checkpoint", "expected"),
    [
        ("--useAdam", CLIPUP, {}, {"optimizer": "adam", "max_speed": None}),
        ("--optimizer adam", {}, CLIPUP, {"optimizer": "adam", "max_speed": None}),
        ("--ray local", {"workers": 0}, {}, {"workers": None}),
        ("--variable-ep-len", {"training_ep_len": 9}, {}, {"training_ep_len": None}),
        ("--sampling gaussian", {"sigma_adapt": True}, {}, {"sigma_adapt": False}),
        ("--hidden-sizes 8", {"init": "zero", "hidden_sizes": ()}, {}, {"init": "torch"}),
    ],
)
def test_a_setting_takes_back_what_it_contradicts_in_lower_layers(
    flags, file, checkpoint, expected
):
    config = combine(from_argv(flags.split()), file, checkpoint)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "file", "words"),
    [
        ("--n 10", {"top_directions": 9}, "; --top-directions 9 is from --config a"),
        (
            "",
            CLIPUP | {"momentum": 0.5},
            "; --momentum 0.5 is from --config a; --optimizer clipup is from --config a",
        ),
        ("", {"n": 1}, "--config a: --n 1 must be from 2 to 1,000,000"),
    ],
)
def test_an_error_names_the_layer_of_a_value(flags, file, words):
    with pytest.raises(UsageError) as raised:
        combine(from_argv(["--config", "a", *flags.split()]), file)
    assert str(raised.value).endswith(words)


def restorable(**settings: Any) -> str:
    """A checkpoint with these settings."""
    save(Checkpoint({}, Config(**{"seed": 4} | settings)), Path("a.safetensors"))
    return "a.safetensors"


def test_a_checkpoint_is_the_lowest_layer():
    path = restorable(sigma=0.2, sigma_min=0.1, silent=True, run_dir="there")
    config, checkpoint = resolve({"restore": path, "workers": 3}, {"workers": 2})
    assert checkpoint is not None
    assert checkpoint.config is not None
    assert checkpoint.config.run_dir == "there"
    assert (config.restore, config.sigma, config.sigma_min, config.workers) == (path, 0.2, 0.1, 3)
    assert (config.run_dir, config.silent) == (None, True)
    assert not resolve({"restore": path, "test": True}, {})[0].silent


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.5}, "--lr 0.5 differs from the checkpoint's 0.1. Remove the flag, or give --ov"),
        ({"lr": 0.5, "config": "A"}, "differs .* Remove the flag, or --config, or give --override"),
        ({"env_kwargs": ("a=1",)}, "--env-kwargs a=1 differs from the checkpoint's nothing"),
        ({"hidden_sizes": (3,), "override": True}, "--hidden-sizes 3 differs .*was made for"),
        ({"hidden_sizes": ()}, "--hidden-sizes differs from the checkpoint's 64 64"),
        ({"env_name": "B", "test": True}, "--env-name B differs"),
    ],
)
def test_settings_that_contradict_a_checkpoint_are_an_error(settings, words):
    with pytest.raises(UsageError, match=words):
        resolve({"restore": restorable(), **settings}, {})


def test_settings_that_change_nothing_of_a_checkpoint():
    path = restorable(optimizer="adam", env_name="__main__:Env-v0")
    same = {"optimizer": "adam", "lr": 0.1, "env_name": "my_module:Env-v0", "workers": 5}
    resolve({"restore": path, **same}, {})
    resolve({"restore": path, "env_name": "other", "lr": 1.0, "override": True}, {})


@pytest.mark.parametrize(
    ("name", "value"), [("env_name", "m:E-v0"), ("net", "m:N"), ("env_wrapper", ("m:W", "x=1"))]
)
def test_a_checkpoint_imports_modules_only_with_trust(name, value):
    path = restorable(**{name: value})
    with pytest.raises(UsageError, match=rf"its {flag(name)} m:.* Give --trust if you trust"):
        resolve({"restore": path}, {})
    assert getattr(resolve({"restore": path, "trust": True}, {})[0], name) == value
    named = {name: value}
    assert getattr(resolve({"restore": path, **named}, {})[0], name) == value
    assert getattr(resolve({"restore": path}, named)[0], name) == value
    resolve({"restore": restorable(env_wrapper=("gymnasium.wrappers:A",))}, {})


def test_a_phase_of_a_checkpoint_imports_modules_only_with_trust():
    weaker = [{"after_updates": k, "env_wrapper": ("m:W", f"force={3 - k}")} for k in (1, 2)]
    path = restorable(phase=tuple(weaker))
    with pytest.raises(UsageError, match=r"its \[\[phase\]\] m:W would import a module"):
        resolve({"restore": path, "env_wrapper": ("n:V",)}, {})
    resolve({"restore": path, "trust": True}, {})


@pytest.mark.parametrize("name", ["B", "A"])
def test_a_files_target_and_directory_hold_for_its_own_task(name):
    file = {"env_name": "A", "target_return": 5.0, "run_dir": "a", "n": 8}
    Path("a.toml").write_text(write_toml(file, ""))
    kept = {"env_name": "A", "n": 8} if name == "B" else file
    assert read_config({"config": "a.toml", "env_name": name}) == kept
    assert read_config({"config": "a.toml"}) == file


def test_settings_survive_a_file():
    words = [
        "--env-name", 'quo"ted\\ ü😀\x7f', "--useAdam", "--seed", "3", "--target-return", "1e-7",
        "--workers", "auto", "--max-minutes", "2", "--lr", "0.1",
        "--hidden-sizes", "3", "4", "--env-kwargs", "a=1", "b=x y",
    ]  # fmt: skip
    config = combine(from_argv(words), {})
    Path("a.toml").write_text(write_toml(config.saved(), "# It"), encoding="utf-8")
    assert Config(**read_toml("a.toml", "")) == config


def test_what_a_command_does_once_is_not_saved():
    config = parse("--test --restore x --episodes 3 --no-render --override --trust")
    assert not {"test", "episodes", "no_render", "config", "trust"} & set(config.saved())
    assert "override" not in parse("--override").saved()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimizer = adam", r"is not valid TOML \(.*line 1.*\)\. Strings need quotes"),
        ("\xff\xfe", "is not valid TOML"),
        (f"n = {'[' * 5000}", "is not valid TOML"),
        ("test = true", "--test belongs on the command line"),
        ('config = "b.toml"', "--config belongs on the command line"),
    ],
)
def test_a_bad_file_is_one_line(text, words):
    Path("a.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=f"^--config a.toml: {words}[^\n]*$"):
        read_config({"config": "a.toml"})


def test_a_missing_file_is_one_line():
    with pytest.raises(UsageError, match=r"--config a/b\.toml: there is no such file$"):
        read_config({"config": "a/b.toml"})
    Path("CartPole-v1").mkdir()  # as a run of that name
    assert read_config({"config": "CartPole-v1"})["env_name"] == "CartPole-v1"
    Path("my-own.toml").touch()
    for wrong, meant in (("my-own", "my-own.toml"), ("CartPol-v1", "CartPole-v1")):
        with pytest.raises(UsageError, match=rf"did you mean {meant}\?$"):
            read_config({"config": wrong})


def test_every_setting_is_a_keyword():
    keywords = inspect.signature(learn).parameters
    playing = {name for name, field in FIELDS.items() if field.metadata["group"] == "watching"}
    assert keywords.keys() == (FIELDS.keys() - playing) | {"callback"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n": 3}, "n 3 must be even"),
        ({"n": "many"}, "arguments: n = 'many' must be a whole number"),
        ({"env_name": Awful()}, "env_name must be a name, a class or .*, not an object of Awful"),
        ({"env_name": lambda: Awful()}, "<lambda>.* has no name"),
        ({"net": partial(Awful)}, "net must be a name, .*, not an object of partial"),
        ({"net": lambda: Awful()}, "net=<lambda> must be defined at the top level of a module"),
        ({"learning_rate": 0.1}, "unknown setting 'learning_rate'; did you mean lr"),
        ({"test": True}, "test belongs on the command line"),
        ({"env_name": "CartPoole-v1"}, "env_name CartPoole-v1: .* Did you mean: `CartPole`"),
        ({"env_kwargs": {"a": object()}}, r"env_kwargs a=<object .* must be a number"),
        ({"env_kwargs": {"wind": 3}}, "unexpected keyword argument 'wind'"),
        ({"restore": "none"}, "restore none: cannot be read"),
    ],
)
def test_keywords_that_do_not_fit_are_errors_and_leave_nothing(settings, words):
    with pytest.raises(UsageError, match=words):
        learn(**HERE | settings)
    assert not [*Path().iterdir()]


def test_keywords_may_be_values_of_python_and_numpy():
    found = from_keywords(
        {
            "env_kwargs": [{"g": np.float64(9.5)}], "hidden_sizes": np.array([8, 4]),
            "n": np.int64(4), "run_dir": Path("here"), "target_return": None,
            "env_wrapper": [(TimeLimit, {"max_episode_steps": 7}), FlattenObservation],
            "phase": [{"after-updates": 1, "lr": np.float64(0.1), "env_kwargs": {"g": 5}}],
        }
    )  # fmt: skip
    wrappers = (
        "gymnasium.wrappers:TimeLimit",
        "max_episode_steps=7",
        "gymnasium.wrappers:FlattenObservation",
    )
    assert found == {
        "env_kwargs": ("g=9.5",), "hidden_sizes": (8, 4), "n": 4, "run_dir": "here",
        "target_return": None, "env_wrapper": wrappers,
        "phase": ({"after_updates": 1, "lr": 0.1, "env_kwargs": ("g=5",)},),
    }  # fmt: skip
    assert from_keywords({"hidden_sizes": 3, "env_wrapper": TimeLimit}) == {
        "hidden_sizes": (3,),
        "env_wrapper": ("gymnasium.wrappers:TimeLimit",),
    }


def test_a_class_that_is_registered_keeps_its_limit_of_steps():
    class Listed(Awful):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    gymnasium.register("Listed-v3", Listed, max_episode_steps=3)
    run = learn(**HERE | {"env_name": Listed}, run_dir="run")
    assert run.history["episode_length_mean"] == 3
    assert len(repr(run)) < 100
    assert load_policy(run.path / "best.safetensors", env_name=Listed).env_id == "Listed-v3"
    gymnasium.registry.pop("Listed-v3")


def test_errors_name_keywords_and_the_commands_in_them_keep_their_flags():
    with pytest.raises(RunError) as raised, errors_in_keywords():
        raise RunError("--run-dir x is full. Give --trust, not --no-such", "  es --restore x")
    assert str(raised.value).splitlines() == [
        "run_dir x is full. Give trust, not --no-such",
        "  es --restore x",
    ]
