"""The space that a sweep searches: Optuna's distribution of each setting."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import create_trial

from es.config import FIELDS, Config, field_names, flag, from_mapping
from es.errors import UsageError
from es.settings import load_toml

GROUPS = ("policy", "algorithm")  # of the settings that can be searched
FORM = "low and high, with log or step, or choices"
Space = dict[str, BaseDistribution]  # by field name


def read_space(path: str, source: str) -> Space:
    """Read the space from a TOML file; raise UsageError, naming `source`, for any fault in it."""
    tables = load_toml(path, source)
    space: Space = {}
    for key, name in field_names(tables, source).items():
        if FIELDS[name].metadata["group"] not in GROUPS:
            raise UsageError(f"{source}: {key} is no setting of the policy or the algorithm")
        if name == "use_adam":
            raise UsageError(f"{source}: {key}: spell it optimizer, with choices")
        if not isinstance(tables[key], dict):
            raise UsageError(
                f"{source}: {key} = {tables[key]!r} must be a table, [{key}], with {FORM}"
            )
        try:
            space[name] = _distribution(key, tables[key], source)
        except ValueError as error:
            raise UsageError(f"{source}: [{key}] {error}") from error
    if not space:
        raise UsageError(f"{source}: names no setting; give one a table with {FORM}")
    return space


def _distribution(key: str, table: dict[str, Any], source: str) -> BaseDistribution:
    """Make a table's distribution. Raise UsageError for a value of the wrong type.

    Raise ValueError for a table that is wrong otherwise.
    """

    def read(value: Any) -> Any:
        (checked,) = from_mapping({key: value}, source).values()
        return encoded(checked)

    match table:
        case {"choices": [_, *_] as choices} if len(table) == 1:
            values = [read(choice) for choice in choices]
            if len(set(values)) < len(values):
                raise ValueError("names a choice twice")
            return CategoricalDistribution(values)
        case {"low": low, "high": high} if table.keys() <= {"low", "high", "log", "step"}:
            low, high = read(low), read(high)
        case _:
            raise ValueError(f"must have {FORM}, and nothing else")
    log, step = table.get("log", False), table.get("step", 1)
    if type(low) not in (int, float):
        raise ValueError("has no numbers; give choices = [...]")
    if type(log) is not bool:
        raise ValueError(f"log = {log!r} must be true or false")
    divides = type(low) is type(step) is int and step > 0 and (high - low) % step == 0
    if "step" in table and (log or not divides):
        raise ValueError(
            f"step = {step!r}: is for whole numbers without log; must divide high - low"
        )
    if isinstance(low, int):
        return IntDistribution(low, high, log=log, step=step)
    return FloatDistribution(low, high, log=log)


def fit_space(
    space: Space,
    base: Config,
    given: set[str],
    describe: Callable[[Config], object],
    source: str,
    *,
    shipped: bool,
) -> Space:
    """Return the space without what contradicts the settings of all trials, or the network.

    In a space of the user's own, such a contradiction raises UsageError.
    given: the fields of the flags on the command line. describe: raises UsageError where an
    environment cannot be played with a policy. shipped: whether the space comes with the program.
    """
    if not shipped and (both := sorted(given & space.keys())):
        raise UsageError(
            f"{source}: {flag(both[0])} is given as a flag, too; leave one of them out"
        )
    space = {name: space[name] for name in space if name not in given}
    kept: Space = {}
    for name, distribution in space.items():
        params, fitting = _decisive(distribution), []
        for param in params:
            try:
                _require_fit(base, name, param, space, describe)
                fitting.append(param)
            except UsageError as error:
                if not shipped:
                    raise UsageError(f"{source}: {error}") from error
        if len(fitting) >= min(2, len(params)):
            categorical = isinstance(distribution, CategoricalDistribution)
            kept[name] = CategoricalDistribution(fitting) if categorical else distribution
    return kept


def trial_settings(base: Config, params: Mapping[str, Any]) -> Config:
    """Return a trial's settings, from the parameters that Optuna has chosen.

    A setting that has no effect beside the others stays as it is in `base`.
    """
    config, used = _replaced(base, params), dict(params)
    if not config.hidden_sizes:
        used.pop("activation", None)
    if config.optimizer_name != "sgd":
        used.pop("momentum", None)
    return _replaced(base, used)


def base_params(space: Space, base: Config) -> dict[str, Any] | None:
    """Return the parameters that stand for `base` itself, or None if it is not in the space."""
    params = {name: encoded(base.effective(name)) for name in space}
    try:
        create_trial(value=0.0, params=params, distributions=space)
    except ValueError:
        return None
    return params


def encoded(value: Any) -> Any:
    """Return a setting's value as Optuna and a table hold it: a list becomes a string."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _replaced(base: Config, params: Mapping[str, Any]) -> Config:
    values: dict[str, Any] = {
        name: tuple(json.loads(param)) if isinstance(getattr(base, name), tuple) else param
        for name, param in params.items()
    }
    return dataclasses.replace(base, **values)


def _decisive(distribution: BaseDistribution) -> tuple[Any, ...]:
    """Return parameters that must be possible for all of the distribution's to be possible."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high = distribution.low, distribution.high
    return (low, high, min(low + distribution.step, high)) if distribution.step else (low, high)


def _require_fit(
    base: Config, name: str, param: Any, space: Space, describe: Callable[[Config], object]
) -> None:
    """Raise UsageError unless the value is possible, if need be with another setting's value."""
    config = _replaced(base, {name: param})
    others = [{other: each} for other in space if other != name for each in _decisive(space[other])]
    for other in ({}, *others):
        with contextlib.suppress(UsageError):
            _replaced(config, other).check()
            break
    else:
        config.check()
    if FIELDS[name].metadata["group"] == "policy":
        describe(config)
