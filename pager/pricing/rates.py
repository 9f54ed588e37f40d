"""The models and prices in force: the catalogue, under a user's own figures and under ``--prices``.

The planner needs ratios to the price of one uncached input token; ``Prices`` holds them.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pager.errors import ConfigError
from pager.pricing.catalog import Catalog, Model
from pager.pricing.prices import Prices
from pager.pricing.provider_cache import LIFETIME, Cache, CacheKind, uncached

NAMED: Mapping[str, Prices] = {
    "anthropic": Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "claude-5.5": Prices(read=0.05, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "claude-fable-5.1": Prices(read=0.025, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "gpt-5.6": Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=1_800.0, write_long=1.25),
    "openai": Prices(read=0.1, write=1.0, output=8.0, ttl_seconds=600.0, write_long=1.0),
    "none": Prices(read=1.0, write=1.0, output=5.0, ttl_seconds=0.0, write_long=1.0),
}
"""The price lists that ``--prices`` knows by name."""

UNKNOWN_PRICE = 10.0
"""Dollars that a million tokens of a model without a known price are taken to cost, for limits on money."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """A user's own figures: what to change, by model name or by its beginning followed by ``*``."""

    models: Mapping[str, Mapping[str, int | float | CacheKind]] = field(default_factory=dict)
    origin: str = ""

    def applied(self, model: Model, asked: str) -> Model:
        """The model with every override that fits the name asked for or the name found; the closest one wins."""
        names = {asked.lower(), model.name.lower()}
        for pattern in sorted(self.models, key=lambda pattern: (not pattern.endswith("*"), len(pattern))):
            start = pattern.lower().removesuffix("*")
            if any(name.startswith(start) if pattern.endswith("*") else name == start for name in names):
                changes: dict[str, Any] = dict(self.models[pattern])
                model = replace(model, **changes, known=True)
        return model


def prices(model: Model) -> Prices:
    """The model's prices as ratios; uncached where its provider caches nothing."""
    found = _ratios(model) if model.input else NAMED[model.price_list]
    return uncached(found) if model.cache_kind is CacheKind.NONE else found


def _ratios(model: Model) -> Prices:
    """The ratios to the price of input, which is known.

    Writing never counts as cheaper than plain input: some lists say 0 where they mean that it costs nothing extra. Nor
    does writing for an hour count as cheaper than writing; where its price is unknown, it is Anthropic's.
    """
    plain = model.input or 1.0
    output = 5.0 if model.output is None else model.output / plain
    step = (model.step_tokens, model.step_factor, model.step_output)
    if model.cached is None:
        return Prices(1.0, 1.0, output, 0.0, 1.0, *step)
    write = write_long = max((model.written or 0.0) / plain, 1.0)
    if model.cache_seconds_long is not None:
        hour = NAMED["anthropic"].write_long if model.written_1h is None else model.written_1h / plain
        write_long = max(hour, write)
    seconds = LIFETIME if model.cache_seconds is None else model.cache_seconds
    return Prices(min(model.cached / plain, 1.0), write, output, seconds, write_long, *step)


@dataclass(frozen=True)
class Models:
    """The catalogue with a user's own figures on top; ``fixed`` prices replace every model's."""

    catalog: Catalog
    overrides: Overrides = field(default_factory=Overrides)
    fixed: Prices | None = None

    @classmethod
    def load(cls) -> "Models":
        """The shipped catalogue as it is."""
        return cls(Catalog.load())

    def using(self, named: "Prices | Overrides") -> "Models":
        """The same table under what ``named_prices`` gave."""
        if isinstance(named, Prices):
            return replace(self, fixed=named)
        table = replace(self, overrides=named)
        for name, changes in named.models.items():
            if not name.endswith("*") and not changes.keys().isdisjoint(_PRICES) and not table.find(name).input:
                raise ConfigError(f"{named.origin}: models.{name}.input: missing; the table has no price of this model")
        return table

    def find(self, model: str) -> Model:
        """What is known of a model, with the user's own figures."""
        found = self.catalog.find(model)
        return self.overrides.applied(found, model) if self.overrides.models else found

    def dollars(self, model: str) -> float:
        """What one uncached input token of a model costs, or is taken to cost where that is not known."""
        return (self.find(model).input or UNKNOWN_PRICE) / 1e6

    def prices(self, model: str) -> Prices:
        """The price ratios in force for a model."""
        return self.fixed or prices(self.find(model))

    def cache(self, model: str) -> Cache:
        """The cache in force for a model; none where reading from it is no cheaper than plain input."""
        if self.prices(model).read >= 1.0:
            return Cache(CacheKind.NONE, 0)
        if self.fixed:  # a price list named for all models holds for prompts of any size, marked or not
            return Cache(CacheKind.AUTOMATIC, 0)
        found = self.find(model)
        return Cache(found.cache_kind, found.cache_minimum)


def in_force(value: str, models: Mapping[str, Mapping[str, object]]) -> Models:
    """The shipped table under ``--prices`` and the configured ``[models]``, which override a price file's."""
    table = Models.load()
    named = named_prices(value) if value else Overrides()
    own = overrides({"models": dict(models)}, origin="[models]")
    if isinstance(named, Prices):
        return table.using(own).using(named)
    return table.using(Overrides({**named.models, **own.models}, named.origin or own.origin))


def named_prices(value: str) -> Prices | Overrides:
    """What ``--prices`` says: a price list by name, or a TOML or JSON file of the user's own figures."""
    if value in NAMED:
        return NAMED[value]
    path = Path(value)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--prices {value}: can't be read ({error}); allowed are {', '.join(NAMED)} or a TOML or JSON file's path"
        ) from error
    return parsed_overrides(text, origin=value, is_json=path.suffix == ".json")


def parsed_overrides(text: str, *, origin: str, is_json: bool = False) -> Overrides:
    """The overrides in a file's text; raises ConfigError, which names the file, the key and what is allowed."""
    import tomllib  # needed by few, and slow to import

    try:
        data = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: is not valid {'JSON' if is_json else 'TOML'}: {error}") from error
    return overrides(data, origin=origin)


# The types of a value, the least one, and both in words.
_TOKENS = ((int,), 1, "a whole number of tokens from 1")
_DOLLARS = ((int, float), 0, "a number of US dollars per million tokens from 0")
_SECONDS = ((int, float), 0, "a number of seconds from 0")
_FACTOR = ((int, float), 0, "a number from 0")
_PRICES = ("input", "output", "cached", "written", "written_1h")
_OVERRIDABLE: Mapping[str, tuple[tuple[type, ...], int, str]] = {
    **dict.fromkeys(("window", "output_limit"), _TOKENS),
    **dict.fromkeys(_PRICES, _DOLLARS),
    **dict.fromkeys(("cache_seconds", "cache_seconds_long"), _SECONDS),
    "cache_kind": ((str,), 0, f"one of {', '.join(CacheKind)}"),
    "cache_minimum": _TOKENS,
    "step_tokens": ((int,), 0, "a whole number of tokens from 0"),
    **dict.fromkeys(("step_factor", "step_output"), _FACTOR),
}


def overrides(data: object, *, origin: str) -> Overrides:
    """Overrides from plain values, as a TOML or JSON file or a larger configuration holds them."""
    tables = _table(data, origin)
    if unknown := tables.keys() - {"models"}:
        raise ConfigError(f"{origin}: {min(unknown)}: unknown key; allowed is [models.NAME]")
    models = _table(tables.get("models", {}), f"{origin}: models")
    return Overrides({name: _changes(changes, f"{origin}: models.{name}") for name, changes in models.items()}, origin)


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table, found {value!r}")
    return value


def _changes(value: object, where: str) -> dict[str, int | float | CacheKind]:
    changes = _table(value, where)
    if unknown := [key for key in changes if key not in _OVERRIDABLE]:
        raise ConfigError(f"{where}.{unknown[0]}: unknown key; allowed are {', '.join(_OVERRIDABLE)}")
    return {key: _checked(key, given, f"{where}.{key}") for key, given in changes.items()}


def _checked(key: str, given: Any, where: str) -> int | float | CacheKind:  # noqa: ANN401 - any TOML or JSON value
    types, least, wanted = _OVERRIDABLE[key]
    if type(given) in types:
        if key == "cache_kind" and given in list(CacheKind):
            return CacheKind(given)
        if key != "cache_kind" and math.isfinite(given) and given >= least:
            number: int | float = given
            return number
    raise ConfigError(f"{where}: must be {wanted}, found {given!r}")
