import pytest

from es.config import Config
from es.config.sources import differences, given, parse, read_config, read_toml, write_toml
from es.errors import UsageError


def test_later_layers_win(tmp_path):
    (tmp_path / "a.toml").write_text('lr = 2\nuseAdam = true\nenv-name = "A"\nworkers = "auto"')
    layers = {"sigma": 0.5, "lr": 0.3} | read_toml(str(tmp_path / "a.toml"))
    config = parse(["--env-name", "B"], layers)
    assert (config.sigma, config.lr, config.use_adam) == (0.5, 2.0, True)
    assert (config.env_name, config.workers, config.n) == ("B", "auto", 40)
    assert not parse(["--no-useAdam"], layers).use_adam


@pytest.mark.parametrize("name", ["B", "A"])
def test_a_files_target_and_directory_hold_for_its_own_task(tmp_path, name):
    file = {"env_name": "A", "target_return": 5.0, "run_dir": "a", "n": 8}
    (tmp_path / "a.toml").write_text(write_toml(file))
    words = ["--config", str(tmp_path / "a.toml"), "--env-name", name]
    kept = {"env_name": "A", "n": 8} if name == "B" else file
    assert read_config(parse(words), given(words)) == kept
    assert read_config(parse(words[:2]), given(words[:2])) == file


def test_settings_survive_a_file(tmp_path):
    config = parse(
        ["--env-name", 'quo"ted\\ ü😀\x7f', "--useAdam", "--seed", "3", "--target-return", "1e-7",
         "--workers", "auto", "--max-minutes", "2",
         "--hidden-sizes", "3", "4", "--env-kwargs", "a=1", "b=x y", "--optimizer", "adamw"]
    )  # fmt: skip
    (tmp_path / "a.toml").write_text(write_toml(config.saved()), encoding="utf-8")
    assert parse([], read_toml(str(tmp_path / "a.toml"))) == config


def test_what_a_command_does_once_is_not_saved():
    config = parse(["--test", "--restore", "x", "--episodes", "3", "--no-render", "--override"])
    assert not {"test", "episodes", "no_render", "config"} & set(config.saved())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = ", "not valid TOML"),
        ("lr-decay = 0.9\nlr_decay = 0.8", "--lr-decay is set twice, as lr-decay and as lr_decay;"),
        ("\xff\xfe", "not valid TOML"),
        ("learning-rate = 1", "unknown setting 'learning-rate'; perhaps you meant lr"),
        ('lr = "fast"', "lr = 'fast': must be a valid number"),
        ("lr = true", "lr = True: must be a valid number"),
        ("n = 4.5", "n = 4.5: must be a valid integer"),
        ("small-net = 1", "small-net = 1: must be a valid boolean"),
        ('workers = "many"', "workers = 'many': must be 'auto' or a valid integer"),
        ("workers = true", "workers = True"),
        ("[lr]\na = 1", "lr = {'a': 1}: must be a valid number"),
        (f"lr = 1{'0' * 400}", "must be a valid number"),
        (f"lr{'.a' * 2000} = 1", "must be a valid number"),
        (f"n = 1{'0' * 5000}", "not valid TOML"),
        (f"n = {'[' * 5000}", "not valid TOML"),
        ("hidden-sizes = 64", "hidden-sizes = 64: must be a valid list"),
        ("hidden-sizes = [6.4]", "hidden-sizes = [6.4]: must be a valid integer"),
        ("env-kwargs = [1]", "env-kwargs = [1]: must be a valid string"),
        ("shaping = 'rank'", "shaping = 'rank': must be 'nes', 'centered-rank', "),
        ("test = true", "--test belongs on the command line"),
        ('config = "b.toml"', "--config belongs on the command line"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, words):
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as raised:
        read_toml(str(path))
    assert str(raised.value).startswith(f"--config {path}: ")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_one_line(tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(UsageError, match=r"--config .*cannot be read \([^)]*\)$"):
            read_toml(str(path))
    (tmp_path / "CartPole-v1.toml").touch()
    for wrong in ("CartPole-v1", "CartPole.toml"):
        with pytest.raises(UsageError, match=r"did you mean .*/CartPole-v1\.toml\?$"):
            read_toml(str(tmp_path / wrong))
    with pytest.raises(UsageError, match=r"did you mean CartPole-v1\?$"):  # which is shipped
        read_toml("CartPol-v1")


def test_only_settings_of_the_algorithm_count_as_different():
    config = parse("--lr 0.2 --workers 3 --max-gradient-updates 9 --silent --seed 4".split())
    own = Config(seed=4)
    assert differences(config, own) == ["--lr 0.2 differs from the checkpoint's 0.1"]
    assert differences(config, own, ["env_name"]) == []


def test_settings_that_were_left_at_their_default_count_too():
    own = Config(seed=4)
    for arguments, words in (
        ("--top-directions 3", "--top-directions 3 differs from the checkpoint's None"),
        ("--hidden-sizes 3", "--hidden-sizes 3 differs from the checkpoint's 64 64"),
        ("--optimizer adam", "--optimizer adam differs from the checkpoint's None"),
    ):
        assert differences(parse([*arguments.split(), "--seed", "4"]), own) == [words]
    adam = Config(seed=4, use_adam=True)
    assert differences(parse(["--optimizer", "adam", "--seed", "4"]), adam) == []
    assert differences(parse(["--optimizer", "sgd", "--seed", "4"]), own) == []


def test_the_settings_of_the_algorithm_as_cells_of_a_table():
    cells = Config(hidden_sizes=(8, 4), use_adam=True, workers=3).hyperparameters()
    assert (cells["hidden_sizes"], cells["optimizer"], cells["lr"]) == ("8 4", "adam", 0.1)
    assert cells["sigma_min"] is None
    assert not {"workers", "use_adam", "run_dir"} & set(cells)
