"""The space that a sweep searches: for each setting a range of numbers, or choices."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from es.config import FIELDS, Config, flag
from es.config.sources import field_names, from_mapping, load_toml
from es.config.validation import require, validate
from es.errors import UsageError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

GROUPS = ("policy", "algorithm")  # of the settings that can be searched
FORM = "low and high, with log or step, or choices"


class Range(NamedTuple):
    """Numbers from low to high: by their logarithm, or, whole numbers, in steps."""

    low: float
    high: float
    log: bool = False
    step: int = 1

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible: what holds for these holds for all."""
        return (self.low, self.high, *([self.low + self.step] if self._whole else ()))

    def holds(self, value: Any) -> bool:
        """Whether the value lies in it."""
        inside = type(value) is type(self.low) and self.low <= value <= self.high
        return inside and not (self._whole and (value - self.low) % self.step)

    def distribution(self) -> BaseDistribution:
        """Optuna's."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log, step=self.step)
        return FloatDistribution(self.low, self.high, log=self.log)

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int)


class Choices(NamedTuple):
    """Any of some values."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible: all."""
        return self.values

    def holds(self, value: Any) -> bool:
        """Whether the value is among them."""
        return value in self.values

    def distribution(self) -> BaseDistribution:
        """Optuna's."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution([encoded(value) for value in self.values])


Space = dict[str, Range | Choices]  # by field name


def read_space(path: str, source: str) -> Space:
    """The space of a file; raises UsageError, naming `source`, for any fault in it."""
    space: Space = {}
    tables = load_toml(path, source)
    for key, name in field_names(tables, source).items():
        table = tables[key]
        if not isinstance(table, dict):
            raise UsageError(f"{source}: {key} = {table!r} must be a table, [{key}], with {FORM}")
        values = [*table.get("choices", [])] if isinstance(table.get("choices"), list) else []
        numbers = [table[end] for end in ("low", "high") if end in table]
        checked = [_value(source, key, value) for value in (*values, *numbers)]
        if not checked:
            raise UsageError(f"{source}: [{key}] must have {FORM}")
        if FIELDS[name].metadata["group"] not in GROUPS:
            raise UsageError(f"{source}: {key} is no setting of the policy or the algorithm")
        if name == "use_adam":
            raise UsageError(f"{source}: {key}: spell it optimizer, with choices")
        space[name] = _choices(source, key, table, checked) if values else _range(
            source, key, table, checked
        )  # fmt: skip
    if not space:
        raise UsageError(f"{source}: names no setting; give one a table with {FORM}")
    return space


def fitted(
    space: Space,
    base: Config,
    given: set[str],
    describe: Callable[[Config], object],
    source: str,
    *,
    shipped: bool,
) -> Space:
    """The space without what contradicts the settings that hold for all trials, or the network.

    In a space of the user's own, that is a mistake: UsageError. given: the fields of the flags on
    the command line. describe: raises UsageError where an environment cannot be played with a
    policy. shipped: whether it is the space that comes with the program.
    """
    given = given | ({"optimizer"} if "use_adam" in given else set())
    if not shipped and (both := sorted(given & space.keys())):
        raise UsageError(
            f"{source}: {flag(both[0])} is given as a flag, too; leave one of them out"
        )
    space = {name: dimension for name, dimension in space.items() if name not in given}
    kept: Space = {}
    for name, dimension in space.items():
        fitting = []
        for value in dimension.ends:
            try:
                _require_fit(base, name, value, space, describe)
                fitting.append(value)
            except UsageError as error:
                if not shipped:
                    raise UsageError(f"{source}: {error}") from error
        if len(fitting) == len(dimension.ends):
            kept[name] = dimension
        elif len(fitting) > 1:
            kept[name] = dimension if isinstance(dimension, Range) else Choices(tuple(fitting))
    return kept


def settings(space: Space, base: Config, params: Mapping[str, Any]) -> Config:
    """A trial's settings, from the parameters that Optuna has chosen.

    Those that are of no use with the others stay as they are in `base`.
    """
    values = {name: _decoded(space[name], value) for name, value in params.items()}
    if not values.get("hidden_sizes", base.hidden_sizes):
        values.pop("activation", None)
    if values.get("optimizer", base.optimizer_name) != "sgd":
        values.pop("momentum", None)
    return dataclasses.replace(base, **values)


def start(space: Space, base: Config) -> dict[str, Any] | None:
    """The parameters that stand for `base` itself, if it lies in the space."""
    values = {name: getattr(base, name) for name in space}
    if not all(space[name].holds(value) for name, value in values.items()):
        return None
    return {name: encoded(value) for name, value in values.items()}


def encoded(value: Any) -> Any:
    """A value as Optuna and a table hold it: a list is a string."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _decoded(dimension: Range | Choices, param: Any) -> Any:
    if isinstance(dimension, Range):
        return param
    return next(value for value in dimension.values if encoded(value) == param)


def _require_fit(
    base: Config, name: str, value: Any, space: Space, describe: Callable[[Config], object]
) -> None:
    """Raises UsageError unless the value is possible, if need be with another setting's value."""
    config = dataclasses.replace(base, **{name: value})
    try:
        validate(config)
    except UsageError:
        others = [{other: end} for other in space if other != name for end in space[other].ends]
        if not any(_is_valid(dataclasses.replace(config, **other)) for other in others):
            raise
    if FIELDS[name].metadata["group"] == "policy":
        describe(config)


def _is_valid(config: Config) -> bool:
    try:
        validate(config)
    except UsageError:
        return False
    return True


def _value(source: str, key: str, value: Any) -> Any:
    """A value of the setting, checked by itself."""
    ((name, checked),) = from_mapping({key: value}, source).items()
    try:
        require(flag(name)[2:], checked, FIELDS[name].metadata["check"])
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    return checked


def _choices(source: str, key: str, table: dict[str, Any], values: Sequence[Any]) -> Choices:
    if len(table) > 1:
        raise UsageError(f"{source}: [{key}] must have {FORM}, and nothing else")
    if len(set(values)) < len(values):
        raise UsageError(f"{source}: [{key}] names a choice twice")
    return Choices(tuple(values))


def _range(source: str, key: str, table: dict[str, Any], numbers: Sequence[Any]) -> Range:
    log, step = table.get("log", False), table.get("step", 1)
    if any(type(number) not in (int, float) for number in numbers):
        raise UsageError(f"{source}: [{key}] has no numbers; give choices = [...]")
    if len(numbers) < 2 or not table.keys() <= {"low", "high", "log", "step"}:
        raise UsageError(f"{source}: [{key}] must have {FORM}, and nothing else")
    low, high = numbers
    if low >= high:
        raise UsageError(f"{source}: [{key}] low = {low} must be below high = {high}")
    if type(log) is not bool or (log and low <= 0):
        raise UsageError(f"{source}: [{key}] log must be true or false, and low above 0 for it")
    if "step" in table:
        if log or type(low) is not int:
            raise UsageError(f"{source}: [{key}] step is for whole numbers without log")
        if type(step) is not int or step < 1 or (high - low) % step:
            raise UsageError(
                f"{source}: [{key}] step = {step} must be a whole number that divides high - low"
            )
    return Range(low, high, log, step)
