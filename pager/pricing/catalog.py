"""The catalogue of models: all facts about each, in one entry.

An entry comes from three places: rules by name and provider, the generated table (``data/models.json``, made by
``scripts/make_models.py``), and single models; rules and single models are kept by hand, with source and date, in
``data/catalog.toml``. Clients name models in many ways (with a provider's path, a region, a date, a version), so a name
that is not known is taken apart, step by step, until what is left is.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from pager.pricing.provider_cache import MINIMUM, CacheKind
from pager.pricing.tokens import FAMILIES, UNKNOWN, Family

WINDOW = 128_000
"""The window of a model that is not in the table."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model; prices are US dollars per million tokens, None where unknown.

    ``cached`` is input read from the provider's cache; ``written`` is input written to it, ``written_1h`` for an hour.
    Prompts of more than ``step_tokens`` cost ``step_factor`` times as much, and their answers ``step_output`` times;
    it is 0 where the price of a token does not depend on the prompt's length. ``price_list`` names the ratios of a
    model without a price.

    A prefix lives ``cache_seconds`` in the cache, None where nothing is documented, or ``cache_seconds_long`` if a mark
    asks for it, None where no mark can; prompts below ``cache_minimum`` tokens are not kept. ``binds_thinking`` if
    thinking holds only behind the very prompt that it was thought behind. ``family`` says how the model counts tokens,
    ``sources`` where all this is from, each with its day.
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
    cache_seconds_long: float | None = None
    step_tokens: int = 0
    step_factor: float = 1.0
    step_output: float = 1.0
    price_list: str = "none"
    binds_thinking: bool = False
    family: Family = UNKNOWN
    known: bool = False
    sources: tuple[str, ...] = field(default=(), compare=False)


Facts = Mapping[str, Any]
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Facts of every model of a kind of name, of a range of versions, of a provider."""

    facts: Facts
    source: str
    name: re.Pattern[str] | None = None
    provider: str = ""
    since: Version = ()
    before: Version = ()

    def fits(self, name: str, provider: str) -> bool:
        """Whether it holds for a model of this name, in lower case, at this provider."""
        if self.provider and self.provider != provider:
            return False
        found = self.name.search(name) if self.name else None
        if found is None:
            return self.name is None
        version = tuple(int(part or 0) for part in found.groups())
        return self.since <= version and (not self.before or version < self.before)


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
class Catalog:
    """All models known: the rows of the generated table, the models kept by hand, and the rules."""

    rows: Mapping[str, Row]
    providers: Sequence[str]
    date: str
    source: str
    models: Mapping[str, Facts] = field(default_factory=dict)
    rules: Sequence[Rule] = ()

    @classmethod
    def load(cls) -> "Catalog":
        """The shipped catalogue."""
        table, kept = read_table(), read_kept()
        return cls(table["models"], table["providers"], table["date"], table["source"], kept["models"], shipped_rules())

    @cached_property
    def find(self) -> Callable[[str], Model]:
        """Facts about a model: by its name, its name taken apart, its longest known beginning, or by rules.

        Its memory is bounded, as names come from clients.
        """
        return lru_cache(1_024)(self._look_up)

    def _look_up(self, model: str) -> Model:
        name = self._known_name(model)
        facts = self._facts(name) if name else {}
        rules = fitting(self.rules, (model, name or ""), facts.get("provider", ""))
        found = Model(name or model, known=bool(name), sources=tuple(rule.source for rule in rules))
        for rule in rules:
            found = replace(found, **rule.facts)
        return replace(found, **{**facts, "sources": (*found.sources, *facts.get("sources", ()))})

    def _facts(self, name: str) -> dict[str, Any]:
        """What the table and the models kept by hand have of a name, of which there is at least one."""
        facts: dict[str, Any] = {}
        sources = []
        if row := self.rows.get(name):
            facts = {key: value for key, value in zip(_COLUMNS, row, strict=False) if value is not None}
            facts["provider"] = self.providers[facts["provider"]]
            sources.append(f"{self.source}, {self.date}")
        if kept := self.models.get(name):
            facts |= _facts_of(kept, {"source", "date"})
            sources.append(_source(kept))
        return {**facts, "sources": tuple(sources)}

    def _known_name(self, model: str) -> str | None:
        ways = [model, *(form for _, form in forms(model))]
        if exact := next((way for way in ways if way in self.models or way in self.rows), None):
            return exact
        # A dot turned into a dash is no place to cut: gpt-4.9 would be gpt-4.
        beginnings = [short for distance, form in forms(model) if 2 <= distance < 4 for short in _shortened(form)]
        return next((self._index[way] for way in (*ways, *beginnings) if way in self._index), None)

    @cached_property
    def _index(self) -> dict[str, str]:
        """Every way to write a known name, with the name it means: priced, its maker's, best known, nearest."""
        best: dict[str, tuple[bool, int, int, int, str]] = {}
        for name, provider, known in self._names():
            maker = _MAKERS.index(provider) if provider in _MAKERS else len(_MAKERS)
            for distance, form in forms(name):
                claim = (known < 4, maker, -known, distance, name)
                if distance == 0 or _telling(form):
                    best[form] = min(best.get(form, claim), claim)
        return {form: claim[-1] for form, claim in best.items()}

    def _names(self) -> Iterator[tuple[str, str, int]]:
        """Every known name with its provider, and how much is known of it."""
        for name, kept in self.models.items():
            yield name, kept["provider"], len(_COLUMNS)
        for name, row in self.rows.items():
            yield name, self.providers[row[0]], len(row)


def fitting(rules: Iterable[Rule], names: Sequence[str], provider: str) -> list[Rule]:
    """The rules that hold for a model: by the first of its names that says anything to them, and by its provider."""
    fit: list[Rule] = []
    for name in names:
        fit = [rule for rule in rules if rule.fits(name.lower(), provider)]
        if any(rule.name for rule in fit):
            break
    return fit


@lru_cache(1_024)
def family_of(model: str) -> Family:
    """How a model of this name counts tokens, with or without a provider's prefix; unknown families are estimates."""
    families = [rule.facts["family"] for rule in fitting(shipped_rules(), [model], "") if "family" in rule.facts]
    kept = read_kept()["models"]
    families += [_facts_of(kept[form], ())["family"] for _, form in forms(model) if "family" in kept.get(form, ())]
    return families[-1] if families else UNKNOWN


def _source(entry: Mapping[str, str]) -> str:
    return f"{entry['source']}, {entry['date']}"


_CONDITIONS = {"name", "provider", "since", "before", "source", "date"}


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """The rules of the shipped catalogue."""
    return tuple(rule_of(entry) for entry in read_kept()["rules"])


def rule_of(entry: Mapping[str, Any]) -> Rule:
    """A rule as the catalogue's file has it."""
    facts = _facts_of(entry, _CONDITIONS)
    name = re.compile(entry["name"]) if "name" in entry else None
    since, before = (tuple(map(int, re.findall(r"\d+", entry.get(key, "")))) for key in ("since", "before"))
    return Rule(facts, _source(entry), name, entry.get("provider", ""), since, before)


def _facts_of(entry: Mapping[str, Any], others: Collection[str]) -> dict[str, Any]:
    """The facts in an entry of the catalogue's file, which has ``others`` beside them."""
    facts = {key: value for key, value in entry.items() if key not in others}
    if "family" in facts:
        facts["family"] = FAMILIES[facts["family"]]
    if "cache_kind" in facts:
        facts["cache_kind"] = CacheKind(facts["cache_kind"])
    return facts


def _read(name: str) -> bytes:
    """A shipped file: the one place here that reads one."""
    from importlib import resources  # takes a while to import, and most commands need no table

    return resources.files("pager.pricing").joinpath("data", name).read_bytes()


@cache
def read_table() -> dict[str, Any]:
    """The generated table."""
    data: dict[str, Any] = json.loads(_read("models.json"))
    return data


@cache
def read_kept() -> dict[str, Any]:
    """What is kept by hand."""
    import tomllib  # slow to import

    return tomllib.loads(_read("catalog.toml").decode())
