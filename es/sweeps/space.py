"""The space that a sweep searches: Optuna's distribution of each setting."""

import json
from collections.abc import Collection
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import create_trial

from es.config import FIELDS, Config, field_name, from_mapping
from es.errors import UsageError
from es.settings import load_toml

GROUPS = ("policy", "algorithm")  # of the settings that can be searched
# Some settings need a value of another one. Where the first is fixed, the second is not searched.
NEEDED = {
    "init": "hidden_sizes", "max_speed": "optimizer", "momentum": "optimizer",
    "top_directions": "n",
}  # fmt: skip
FORM = "low and high, with log or step, or choices"
Space = dict[str, BaseDistribution]  # by field name


def read_space(path: str, source: str) -> Space:
    """Read the space from a TOML file; raise UsageError, naming `source`, for any fault in it."""
    tables = load_toml(path, source)
    space: Space = {}
    for key, table in tables.items():
        name = field_name(key, source)
        if FIELDS[name].metadata["group"] not in GROUPS:
            raise UsageError(f"{source}: {key} cannot be searched")
        try:
            space[name] = _distribution(key, table, source)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{source}: [{key}] {error}") from error
    if not space:
        raise UsageError(f"{source}: names no setting. Give one a table with {FORM}")
    return space


def _distribution(key: str, table: Any, source: str) -> BaseDistribution:
    """Make a table's distribution. Raise UsageError for a value of the wrong type.

    Raise ValueError or TypeError, some of which are Optuna's, for a table that is wrong otherwise.
    """

    def read(value: Any) -> Any:
        (checked,) = from_mapping({key: value}, source).values()
        return encoded(checked)

    match table:
        case {"choices": [_, *_] as choices} if len(table) == 1:
            return CategoricalDistribution([read(choice) for choice in choices])
        case {"low": low, "high": high} if table.keys() <= {"low", "high", "log", "step"}:
            low, high = read(low), read(high)
        case _:
            raise ValueError(f"must be a table with {FORM}, and nothing else")
    options = {name: table[name] for name in ("log", "step") if name in table}
    match low:
        case bool() | str():
            raise ValueError("has no numbers. Give choices = [...]")
        case int():
            return IntDistribution(low, high, **options)
        case _:
            return FloatDistribution(low, high, **options)


def fit_space(space: Space, fixed: Collection[str], network: str) -> Space:
    """Return the space without the settings that are fixed, and without those that these need.

    Unless the network is an MLP, leave out the settings of an MLP's layers, too. fixed: the fields
    that flags give or phases change. network: the kind of the network.
    """
    left_out = {*fixed, *(NEEDED[name] for name in fixed if name in NEEDED)}
    if network != "mlp":
        left_out |= {"hidden_sizes", "activation"}
    return {name: space[name] for name in space if name not in left_out}


def base_params(space: Space, base: Config) -> dict[str, Any] | None:
    """Return the parameters that stand for `base` itself, or None if it is not in the space."""
    params = {name: encoded(base.canonical(name)) for name in space}
    try:
        create_trial(value=0.0, params=params, distributions=space)
    except ValueError:
        return None
    return params


def encoded(value: Any) -> Any:
    """Return a setting's value as Optuna and a table hold it: a list becomes a string."""
    return json.dumps(value) if isinstance(value, tuple) else value
