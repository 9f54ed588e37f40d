"""The table of models: windows, output limits, prices, and how a provider caches a prompt's prefix.

The table is made by ``scripts/make_models.py`` and shipped with its date. Clients name models in many ways (with a
provider's path, a region, a date, a version), so a name that is not in the table is taken apart, step by step, until
what is left is in it. The planner needs ratios to the price of one uncached input token; ``Prices`` holds them.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from pager.caches import LIFETIME, MINIMUM, Cache, CacheKind, documented, lifetime, uncached
from pager.errors import ConfigError
from pager.policy import Prices
from pager.tokens import family_of

WINDOW = 128_000
"""The window of a model that is not in the table."""

NAMED: Mapping[str, Prices] = {
    "anthropic": Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "claude-5.5": Prices(read=0.05, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "claude-fable-5.1": Prices(read=0.025, write=1.25, output=5.0, ttl_seconds=300.0, write_long=2.0),
    "gpt-5.6": Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=1_800.0, write_long=1.25),
    "openai": Prices(read=0.1, write=1.0, output=8.0, ttl_seconds=600.0, write_long=1.0),
    "none": Prices(read=1.0, write=1.0, output=5.0, ttl_seconds=0.0, write_long=1.0),
}
"""The price lists that ``--prices`` knows by name."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model; prices are US dollars per million tokens, None where unknown.

    ``cached`` is input read from the provider's cache; ``written`` is input written to it, ``written_1h`` for an hour.
    Prompts of more than ``step_tokens`` cost ``step_factor`` times as much, and their answers ``step_output`` times;
    it is 0 where the price of a token does not depend on the prompt's length.
    """

    name: str
    provider: str = ""
    window: int = WINDOW
    output_limit: int | None = None
    input: float | None = None
    output: float | None = None
    cached: float | None = None
    written: float | None = None
    written_1h: float | None = None
    cache_seconds: float | None = None
    cache_kind: CacheKind = CacheKind.AUTOMATIC
    cache_minimum: int = MINIMUM
    step_tokens: int = 0
    step_factor: float = 1.0
    step_output: float = 1.0
    known: bool = False


@dataclass(frozen=True, slots=True)
class Overrides:
    """A user's own figures: what to change, by model name or by its beginning followed by ``*``."""

    models: Mapping[str, Mapping[str, int | float | CacheKind]] = field(default_factory=dict)
    origin: str = ""

    def applied(self, model: Model, asked: str) -> Model:
        """The model with every override that fits the name asked for or the name found; the closest one wins."""
        names = {asked.lower(), model.name.lower()}
        for pattern in sorted(self.models, key=lambda pattern: (not pattern.endswith("*"), len(pattern))):
            if any(_fits(pattern.lower(), name) for name in names):
                changes: dict[str, Any] = dict(self.models[pattern])
                model = replace(model, **changes, known=True)
        return model


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def prices(model: Model) -> Prices:
    """The model's prices as ratios.

    Writing never counts as cheaper than plain input: some lists say 0 where they mean that it costs nothing extra. Nor
    does writing for an hour count as cheaper than writing.
    """
    found = _ratios(model)
    return uncached(found) if model.cache_kind is CacheKind.NONE else found


def _ratios(model: Model) -> Prices:
    if not model.input:
        return _by_maker(model.name)
    output = 5.0 if model.output is None else model.output / model.input
    step = (model.step_tokens, model.step_factor, model.step_output)
    if model.cached is None:
        return Prices(1.0, 1.0, output, 0.0, 1.0, *step)
    write = max((model.written or 0.0) / model.input, 1.0)
    return Prices(
        min(model.cached / model.input, 1.0),
        write,
        output,
        LIFETIME if model.cache_seconds is None else model.cache_seconds,
        max((model.written_1h or 0.0) / model.input, write),
        *step,
    )


def _by_maker(name: str) -> Prices:
    """The ratios of whoever makes a model of this name, for one whose price is unknown or nothing."""
    family = family_of(name)
    if family.name == "claude":
        return NAMED["anthropic"]
    return NAMED["none"] if family.estimate else NAMED["openai"]


# The steps by which a name is taken apart.
_VENDOR = re.compile(r"^(?:(?:us|us-gov|eu|apac|au|jp|ca|sa|global)\.)?[a-z][a-z0-9]*\.(?=[a-z][a-z0-9]*-)")
_SUFFIX = re.compile(r"(?:(?<=\d)-v\d+(?::\d+)?|[@-]\d{8}|-\d{4}-\d{2}-\d{2}|[@-](?:default|latest))$")
_DOT = re.compile(r"(?<=\d)\.(?=\d)")
# Where several providers offer a model, the name without a provider means the first of these that does.
_MAKERS = ("anthropic", "openai", "gemini", "xai", "deepseek", "mistral", "moonshot", "zai", "minimax", "dashscope")


def forms(name: str) -> Iterator[tuple[int, str]]:
    """The ways to write a model's name, each with how far it is from the name given."""
    tail = name.lower()
    yield 0, tail
    while "/" in tail:
        tail = tail.partition("/")[2]
        yield 1, tail
    bare = _VENDOR.sub("", tail)
    yield 2, bare
    while (shorter := _SUFFIX.sub("", bare)) != bare:
        bare = shorter
        yield 3, bare
    yield 4, _DOT.sub("-", bare)


def _shortened(name: str) -> Iterator[str]:
    """Ever shorter beginnings of a name."""
    while (cut := max(name.rfind("-"), name.rfind(":"), name.rfind("@"))) > 0:
        name = name[:cut]
        yield name


def _telling(name: str) -> bool:
    """Whether a name says which model it is: ``chat`` and ``query`` are names of models too, but not of one model."""
    return "-" in name or any(map(str.isdigit, name))


Row = Sequence[Any]
_COLUMNS = (
    *("provider", "window", "output_limit", "input", "output", "cached", "written", "written_1h"),
    *("step_tokens", "step_factor", "step_output"),
)


@dataclass(frozen=True)
class Table:
    """All models known, with a user's own figures on top; ``fixed`` prices stand for every model's."""

    rows: Mapping[str, Row]
    providers: Sequence[str]
    date: str
    source: str
    overrides: Overrides = field(default_factory=Overrides)
    fixed: Prices | None = None

    @classmethod
    def load(cls) -> "Table":
        """The shipped table."""
        data = read_table()
        return cls(data["models"], data["providers"], data["date"], data["source"])

    def using(self, named: "Prices | Overrides") -> "Table":
        """The same table under what ``named_prices`` gave."""
        if isinstance(named, Prices):
            return replace(self, fixed=named)
        table = replace(self, overrides=named)
        for name, changes in named.models.items():
            if not name.endswith("*") and not changes.keys().isdisjoint(_PRICES) and not table.find(name).input:
                raise ConfigError(f"{named.origin}: models.{name}.input: missing; the table has no price of this model")
        return table

    def find(self, model: str) -> Model:
        """What is known of a model: by its name, its name taken apart, its longest known beginning, or nothing."""
        return self._find(model)

    def prices(self, model: str) -> Prices:
        """The price ratios in force for a model."""
        return self.fixed or prices(self.find(model))

    def cache(self, model: str) -> Cache:
        """The cache in force for a model; none where reading from it is no cheaper than plain input."""
        if self.prices(model).read >= 1.0:
            return Cache(CacheKind.NONE, 0)
        if self.fixed:  # a price list named for all models stands for prompts of any size, marked or not
            return Cache(CacheKind.AUTOMATIC, 0)
        found = self.find(model)
        return Cache(found.cache_kind, found.cache_minimum)

    @cached_property
    def _find(self) -> Callable[[str], Model]:
        """The look-up with a bounded memory, as names come from clients."""
        return lru_cache(1_024)(self._look_up)

    def _look_up(self, model: str) -> Model:
        name = self._known_name(model)
        found = Model(model) if name is None else self._model(name)
        cache = documented(found.name, found.provider)
        found = replace(found, cache_kind=cache.kind, cache_minimum=cache.minimum)
        return self.overrides.applied(found, model)

    def _known_name(self, model: str) -> str | None:
        ways = [model, *(form for _, form in forms(model))]
        if exact := next((way for way in ways if way in self.rows), None):
            return exact
        # A dot turned into a dash is no place to cut: gpt-4.9 would be gpt-4.
        beginnings = [short for distance, form in forms(model) if 2 <= distance < 4 for short in _shortened(form)]
        return next((self._index[way] for way in (*ways, *beginnings) if way in self._index), None)

    def _model(self, name: str) -> Model:
        row = {key: value for key, value in zip(_COLUMNS, self.rows[name], strict=False) if value is not None}
        provider = self.providers[row.pop("provider")]
        row["window"] = row.get("window") or WINDOW
        charges_writes = (row.get("written") or 0.0) > (row.get("input") or 0.0)
        kept = lifetime(name, provider, charges_writes=charges_writes)
        return Model(name, provider, **row, cache_seconds=kept, known=True)

    @cached_property
    def _index(self) -> dict[str, str]:
        """Every way to write a known name, with the name it means: priced, its maker's, best known, nearest."""
        best: dict[str, tuple[bool, int, int, int, str]] = {}
        for name, row in self.rows.items():
            provider = self.providers[row[0]]
            maker = _MAKERS.index(provider) if provider in _MAKERS else len(_MAKERS)
            for distance, form in forms(name):
                claim = (len(row) < 4, maker, -len(row), distance, name)
                if distance == 0 or _telling(form):
                    best[form] = min(best.get(form, claim), claim)
        return {form: claim[-1] for form, claim in best.items()}


def in_force(value: str, models: Mapping[str, Mapping[str, object]]) -> Table:
    """The shipped table under ``--prices`` and the configured ``[models]``, which stand above a price file's."""
    table = Table.load()
    named = named_prices(value) if value else Overrides()
    own = overrides({"models": dict(models)}, origin="[models]")
    if isinstance(named, Prices):
        return table.using(own).using(named)
    return table.using(Overrides({**named.models, **own.models}, named.origin or own.origin))


@cache
def read_table() -> dict[str, Any]:
    """The shipped table's file; it and ``named_prices`` are the two places here that read one."""
    from importlib import resources  # takes a while to import, and most commands need no table

    text = resources.files("pager").joinpath("data", "models.json").read_bytes()
    data: dict[str, Any] = json.loads(text)
    return data


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


_LIMITS = ("window", "output_limit")
_PRICES = ("input", "output", "cached", "written", "written_1h")
_STEP = ("step_tokens", "step_factor", "step_output")
_OVERRIDABLE = (*_LIMITS, *_PRICES, "cache_seconds", "cache_kind", "cache_minimum", *_STEP)
_TYPES = {"step_tokens": (int,)}
_WANTED = {
    "cache_seconds": "a number of seconds from 0",
    "step_tokens": "a whole number of tokens from 0",
    "step_factor": "a number from 0",
    "step_output": "a number from 0",
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
    if key == "cache_kind":
        if given not in list(CacheKind):
            raise ConfigError(f"{where}: must be one of {', '.join(CacheKind)}, found {given!r}")
        return CacheKind(given)
    if key in {*_LIMITS, "cache_minimum"}:
        if type(given) is not int or given < 1:
            raise ConfigError(f"{where}: must be a whole number of tokens from 1, found {given!r}")
    elif type(given) not in _TYPES.get(key, (int, float)) or not math.isfinite(given) or given < 0:
        wanted = _WANTED.get(key, "a number of US dollars per million tokens from 0")
        raise ConfigError(f"{where}: must be {wanted}, found {given!r}")
    number: int | float = given
    return number
