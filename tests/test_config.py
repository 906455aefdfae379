"""Values, and rules between settings."""

import pytest

from es.config import FIELDS, Config, flag, from_mapping, read_assignments, read_wrappers
from es.errors import UsageError

REFERENCE_DEFAULTS = {
    "--env-name": "PongDeterministic-v4",
    "--lr": 0.1,
    "--lr-decay": 1.0,
    "--sigma": 0.05,
    "--n": 40,
    "--max-episode-length": 100_000,
    "--max-gradient-updates": 100_000,
    "--restore": "",
    "--small-net": False,
    "--variable-ep-len": False,
    "--silent": False,
    "--test": False,
}


def test_names_and_defaults_are_those_of_pytorch_es():
    ours = {flag(name): Config().canonical(name) for name in FIELDS}
    assert {name: ours[name] for name in REFERENCE_DEFAULTS} == REFERENCE_DEFAULTS


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", (0, 1, 10**6 + 2)), ("lr", (0.0, -1.0, float("nan"), float("inf"), 1e300)),
        ("max_episode_length", (0, 2**53 + 1)), ("workers", (-1, 10**20)), ("seed", (-1,)),
        ("target_return", (float("nan"), -1e300)), ("max_minutes", (0.0, float("inf"))),
        ("env_name", ("", " ")), ("sticky_actions", (1.5,)), ("momentum", (1.0, -0.5)),
        ("hidden_sizes", ((0,), (64, -3), (1,) * 101)), ("reward_clip", ((1.0,), (1.0, -1.0))),
        ("param_fraction", (0.0, 1.5)), ("env_kwargs", (("g",),)), ("net", ("a.b.C", "a:b:c")),
        ("env_wrapper", (("a.b.C",), ("a:b", "c"), ("x=1",))), ("ray", ("here", "host:999999")),
        ("video", ("a.avi",)), ("run_dir", ("",)),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_an_error_with_flag_and_value(name, values):
    for value in values:
        with pytest.raises(UsageError, match=rf"^{flag(name)} .* must ") as raised:
            Config().under({name: value})
        assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n": 7}, "--n 7 must be even"),
        ({"optimizer": "clipup"}, "--optimizer clipup and --max-speed"),
        ({"max_speed": 1.0}, "--optimizer clipup and --max-speed"),
        ({"sampling": "gaussian", "top_directions": 2}, "--sampling gaussian has none"),
        ({"sampling": "gaussian", "sigma_adapt": True}, "--sampling gaussian has none"),
        ({"sigma_adapt": True, "param_fraction": 0.5}, "Remove --top-directions and --param-f"),
        ({"squash": "clip", "action_bins": 5}, "--squash clip has no effect with --action-bins 5"),
        ({"rollout_timeout": 9.0, "workers": 0}, "--rollout-timeout replaces worker processes"),
        ({"n": 10, "top_directions": 6}, "--top-directions 6 must be at most half of --n 10"),
        ({"optimizer": "adam", "momentum": 0.9}, "--momentum 0.9 applies only to --optimizer sgd"),
        ({"sigma_min": 1.0}, "--sigma-min 1.0 must be at most --sigma 0.05"),
        ({"n_max": 20}, "--n-max 20 must be at least --n 40"),
        ({"init": "zero"}, "--init zero is for linear policies"),
        ({"variable_ep_len": True, "training_ep_len": 9}, "Give one of them"),
        ({"ray": "local", "workers": 0}, "--ray local plays on a cluster"),
        ({"test": True}, "--test needs --restore"),
        ({"export": "a.onnx"}, "--export needs --restore"),
        ({"test": True, "export": "a.onnx", "restore": "x"}, "--test and --export a.onnx"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(UsageError, match=words):
        Config().under(settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning-rate": 1}, "unknown setting 'learning-rate'; did you mean lr?"),
        ({"sigma_decays": 1}, "unknown setting 'sigma_decays'; did you mean sigma_decay?"),
        ({"lr": "fast"}, "lr = 'fast' must be a number"),
        ({"lr": 10**400}, "lr = 1000.* must be a number"),
        ({"n": 4.5}, "n = 4.5 must be a whole number"),
        ({"small-net": 1}, "small-net = 1 must be true or false"),
        ({"workers": "many"}, "workers = 'many' must be a whole number or 'auto'"),
        ({"workers": True}, "workers = True must be"),
        ({"hidden-sizes": 64}, "hidden-sizes = 64 must be a list of whole numbers"),
        ({"env-kwargs": [1]}, "env-kwargs = .* must be a list of strings"),
        ({"shaping": "rank"}, "shaping = 'rank' must be 'nes' or 'centered-rank' or "),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_that_names_its_source(settings, words):
    with pytest.raises(UsageError, match=f"^file: {words}"):
        from_mapping(settings, "file")


def test_values_have_the_types_of_their_fields():
    found = from_mapping(
        {"lr": 1, "hidden-sizes": [4], "reward_clip": [-1, 1], "small-net": True}, ""
    )
    expected = {"lr": 1.0, "hidden_sizes": (4,), "reward_clip": (-1.0, 1.0), "small_net": True}
    assert repr(found) == repr(expected)


def test_files_may_spell_adam_as_pytorch_es_and_as_older_versions_do():
    assert from_mapping({"useAdam": True}, "") == from_mapping({"optimizer": "adam"}, "")
    assert from_mapping({"use_adam": False}, "") == {}
    with pytest.raises(UsageError, match=r"^file: useAdam = 1 must be true or false"):
        from_mapping({"useAdam": 1}, "file")


def test_arguments_are_read_as_python_or_json_or_else_as_text():
    words = ["a=1", "b=[True, None]", "c=true", "d=x y", "e={1: 2}", "f=1e999"]
    expected = {"a": 1, "b": [True, None], "c": True, "d": "x y", "e": {1: 2}, "f": "1e999"}
    assert read_assignments(words) == expected
    assert read_wrappers(["m:A", "x=1", "n.o:B"]) == [
        {"name": "m:A", "kwargs": {"x": 1}},
        {"name": "n.o:B", "kwargs": {}},
    ]


def test_the_learning_rate_has_a_default_for_the_optimiser():
    clipup = Config(optimizer="clipup", max_speed=0.1)
    assert [Config().step_size, clipup.step_size] == [0.1, 0.75 * 0.1]
    assert Config(lr=3.0, optimizer="clipup", max_speed=0.1).step_size == 3


def test_the_settings_of_the_algorithm_as_cells_of_a_table():
    cells = Config(hidden_sizes=(8, 4), optimizer="adam", workers=3).hyperparameters()
    assert (cells["hidden_sizes"], cells["optimizer"], cells["lr"]) == ("8 4", "adam", 0.1)
    assert cells["sigma_min"] is None
    assert not {"workers", "run_dir"} & set(cells)


def test_flags_that_restore_what_a_script_has_defined_name_a_module():
    assert Config().flags_to_restore == []
    assert Config(env_name="a:B-v0", net="m:N").flags_to_restore == ["--trust"]
    script = Config(net="__main__:N", env_wrapper=("gymnasium.wrappers:A", "x=1"))
    assert script.flags_to_restore == ["--trust", "--net", "MODULE:N"]
