"""Reads the settings, the one module that does.

Values come in layers, the later wins: defaults, files, the environment, flags. Every layer is checked by itself, so
that a wrong value is reported even where a later layer hides it, and all problems of a load are reported at once.

A file in the working folder may be anybody's: it came with whatever was cloned or unpacked there. Until the user trusts
that folder (``pager.config.trust``), only what is harmless in it counts, over the user's own file instead of in its
place.
"""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

from platformdirs import user_config_dir
from pydantic import ValidationError

from pager.config.setting_keys import (
    KEYS,
    PREFIX,
    SettingKey,
    flag_name,
    variable_name,
)
from pager.config.settings import Settings
from pager.config.trust import Trusted, TrustState
from pager.errors import ConfigError

__all__ = [
    "FILE_NAME",
    "KEYS",
    "Folder",
    "Loaded",
    "Settings",
    "load",
    "render",
    "sources",
    "trusted",
]

FILE_NAME = "ctxpager.toml"
NOT_SETTINGS = {
    "CTXPAGER_CONFIG": "names the file to read, as `--config` does",
    "CTXPAGER_RECORDINGS": "where the tests and benchmarks find recorded requests",
    "CTXPAGER_KILLS": "how often the crash test kills the proxy",
}
# Kubernetes gives every pod such variables for a Service that is called ctxpager.
KUBERNETES = re.compile(r"CTXPAGER_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_\w+)=|CTXPAGER_PORT=(tcp|udp|sctp)://")
_ABSENT = object()
_PLACES = {"environment": "the environment", "flag": "flags"}
_BY_NAME = {key.name: key for key in KEYS}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and for each dotted key where its value came from.

    ``notices`` says what of a working folder's file was ignored, and what to do about it; empty if nothing was.
    """

    settings: Settings
    origin: dict[str, str]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layer:
    tree: Mapping[str, Any]
    origin: Callable[[str], str]
    notice: str = ""


def load(flags: Mapping[str, object], *, cwd: Path, env: Mapping[str, str], config_dir: Path | None = None) -> Loaded:
    """The settings from all layers; raises ConfigError with everything that is wrong.

    ``flags`` has dotted keys, and ``config`` for the file; None is a flag that was not given, text is read as that of a
    variable is. ``config_dir`` is the user's configuration folder, by default the platform's.
    """
    problems: list[str] = []
    layers = [_environment_layer(env), _flag_layer(flags)]
    try:
        layers = [*_file_layers(flags.get("config"), cwd, env, config_dir), *layers]
    except ConfigError as error:
        problems.append(str(error))
    problems += [problem for layer in layers for problem in _check(layer)]
    values, origin = _winners(layers)
    problems += _unknown_variables(env, values)
    if problems:
        raise ConfigError(_join(problems))
    notices = tuple(layer.notice for layer in layers if layer.notice)
    return Loaded(Settings.model_validate(_nest(values)), origin, notices)


def _file_layers(flag: object, cwd: Path, env: Mapping[str, str], config_dir: Path | None) -> list[_Layer]:
    named = str(flag or env.get("CTXPAGER_CONFIG") or "")
    if named:
        path = cwd / expanduser(named)  # noqa: PTH111 - pathlib's raises for an unknown user
        if not isfile(path):  # noqa: PTH113 - pathlib's raises where a folder is closed to us
            by = "--config" if flag else "CTXPAGER_CONFIG"
            raise ConfigError(f"file {path}: no such file, but {by} names it; name a file that exists or leave it out")
        return [_file_layer(path, _read(path))]
    path, own = cwd / FILE_NAME, (config_dir or Path(user_config_dir("ctxpager"))) / FILE_NAME
    has_own = isfile(own)  # noqa: PTH113
    folder = None
    if isfile(path) and not (has_own and path.samefile(own)):  # noqa: PTH113
        folder = Folder(cwd, config_dir)
        if folder.standing is TrustState.TRUSTED:
            return [folder.layer]
    return [*([_own_layer(own)] if has_own else []), *([folder.safe_layer] if folder else [])]


def trusted(config_dir: Path | None = None) -> Trusted:
    """The folders that the user trusts."""
    return Trusted(config_dir or Path(user_config_dir("ctxpager")))


class Folder:
    """A folder with a settings file that may be anybody's; raises ConfigError where it has none that can be read."""

    def __init__(self, path: Path, config_dir: Path | None = None) -> None:
        self._path = path
        self._file = path / FILE_NAME
        self._content = _read(self._file)
        self._trusted = trusted(config_dir)
        self.layer = _file_layer(self._file, self._content)

    @property
    def standing(self) -> TrustState:
        """Whether the user trusts it as it is now."""
        return self._trusted.standing(self._path, self._content)

    @property
    def guarded(self) -> list[str]:
        """The settings in its file that count only once it is trusted."""
        return [name for name, value in _given(self.layer).items() if not _BY_NAME[name].words.guard.is_safe(value)]

    @property
    def safe_layer(self) -> _Layer:
        """What holds of its file though it is not trusted, with a notice of what does not."""
        guarded = self.guarded
        if not guarded:
            return self.layer
        place, way_out = f"file {self._file}", "`ctxpager trust` allows them, --config names a file that is to be read"
        notice = f"{place} is {self.standing.value}: ignored {', '.join(guarded)}; {way_out}"
        return _Layer(_without(self.layer.tree, guarded), self.layer.origin, notice)

    def trust(self) -> list[str]:
        """Trust it as it is now, if its settings are right; what that allows, as TOML writes it."""
        problems = _check(self.layer)
        if problems:
            raise ConfigError(_join(problems))
        self._trusted.add(self._path, self._content)
        values = _given(self.layer)
        shown = {name: "(not shown)" if _BY_NAME[name].words.private else toml(values[name]) for name in self.guarded}
        return [f"{name} = {value}" for name, value in shown.items()]


def _own_layer(path: Path) -> _Layer:
    """The user's own file, which holds in every working folder: code that it names is beside it, never there."""
    layer = _file_layer(path, _read(path))
    tree = dict(layer.tree)
    if isinstance(policy := tree.get("policy"), str):
        tree["policy"] = _beside(path, policy)
    if isinstance(arms := _look_up(tree, "experiment.arms"), Mapping):
        tree["experiment"] = {**tree["experiment"], "arms": {_beside(path, name): arms[name] for name in arms}}
    return _Layer(tree, layer.origin)


def _beside(path: Path, policy: str) -> str:
    """The name of a policy; a relative path in it as seen from the folder of a file."""
    place, colon, name = policy.rpartition(":")
    return f"{path.parent / expanduser(place)}{colon}{name}" if place.endswith(".py") else policy  # noqa: PTH111


def _without(tree: Mapping[str, Any], names: Collection[str], prefix: str = "") -> dict[str, Any]:
    """The tree without the settings of these names; a table that is empty then stays, which sets nothing."""
    return {
        key: _without(value, names, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if prefix + key not in names
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"file {path}: can't be read: {error.strerror}") from None


def _file_layer(path: Path, content: bytes) -> _Layer:
    try:
        text = content.decode("utf-8-sig")
        return _Layer(tomllib.loads(text), lambda _: f"file {path}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"file {path}: line {line} is not UTF-8, which TOML must be") from None
    except tomllib.TOMLDecodeError as error:
        place = f"at line {text.count(chr(10)) + 1}, the end of the file"
        reason = str(error).replace("at end of document", place)
        raise ConfigError(f"file {path}: not valid TOML: {reason}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of nested lists
        raise ConfigError(f"file {path}: not valid TOML: {error}") from None


def _environment_layer(env: Mapping[str, str]) -> _Layer:
    given = {key: env.get(key.variable, "") for key in KEYS}
    values = {
        key.name: key.decode(text)
        for key, text in given.items()
        if text and not KUBERNETES.match(f"{key.variable}={text}")
    }
    return _Layer(_nest(values), lambda name: f"environment {variable_name(name)}")


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    known = {key.name: key for key in KEYS}
    given = {name: value for name, value in flags.items() if name != "config" and value is not None}
    values = {
        name: known[name].decode(value) if isinstance(value, str) and name in known else value
        for name, value in given.items()
    }
    return _Layer(_nest(values), lambda name: f"flag {flag_name(name)}")


def _nest(values: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *tables, last = name.split(".")
        place = tree
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return tree


def _look_up(tree: object, name: str) -> object:
    for part in name.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return _ABSENT
        tree = tree[part]
    return tree


def _given(layer: _Layer) -> dict[str, object]:
    """The settings that a layer has."""
    found = {key.name: _look_up(layer.tree, key.name) for key in KEYS}
    return {name: value for name, value in found.items() if value is not _ABSENT}


def _winners(layers: Iterable[_Layer]) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    origin = {key.name: "default" for key in KEYS}
    for layer in layers:
        given = _given(layer)
        values |= given
        origin |= {name: layer.origin(name) for name in given}
    return values, origin


def _check(layer: _Layer) -> list[str]:
    try:
        Settings.model_validate(layer.tree)
    except ValidationError as error:
        return [_problem(layer, item) for item in error.errors(include_url=False, include_context=False)]
    return []


def _problem(layer: _Layer, error: Mapping[str, Any]) -> str:
    name = ".".join(_toml_key(str(part)) for part in error["loc"] if part != "[key]")
    key = next((key for key in KEYS if f"{name}.".startswith(f"{key.name}.")), None)
    origin = layer.origin(key.name if key else name)
    if error["type"] == "extra_forbidden":
        return f"{origin}: {name} is not a setting; {_nearest_key(name)}"
    if key is None:
        inside = ", ".join(known.name for known in KEYS if known.name.startswith(f"{name}."))
        return f"{origin}: {name}: found {_show(error['input'])}; allowed: a table, with the keys {inside}"
    found = "a value that is not shown, as it may be a secret" if key.words.private else _show(error["input"])
    return f"{origin}: {name}: found {found}; allowed: {key.words.allowed}"


def _show(value: object) -> str:
    # A base URL with credentials or a query in it may hold a secret.
    return re.sub(r'//[^"]*@|\?[^"]*', "(hidden)", toml(value))


def _nearest_key(name: str) -> str:
    names = [*(key.name for key in KEYS), *(key.table for key in KEYS if key.table)]
    by_last_part = {known.rpartition(".")[2]: known for known in names}
    last = name.rpartition(".")[2]
    near = by_last_part.get(last) or _nearest(name, names) or by_last_part.get(_nearest(last, by_last_part))
    return f"the nearest one is {near}" if near else f"the settings are {', '.join(key.name for key in KEYS)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # only needed for messages

    return next(iter(get_close_matches(name, known, n=1)), "")


def _unknown_variables(env: Mapping[str, str], values: Mapping[str, object]) -> list[str]:
    known = [key.variable for key in KEYS]
    expected = [*known, *NOT_SETTINGS, *_holders_of_keys(values)]
    return [
        f"environment {name} is not a setting; {_nearest_variable(name, known)}"
        for name in sorted(env)
        if name.startswith(PREFIX) and name not in expected and not KUBERNETES.match(f"{name}={env[name]}")
    ]


def _holders_of_keys(values: Mapping[str, object]) -> list[object]:
    # Users may well call the variable that holds a key CTXPAGER_something.
    tenants = values.get("identity.keys")
    return [values.get("upstream.api_key_env"), *(tenants.values() if isinstance(tenants, Mapping) else ())]


def _nearest_variable(name: str, known: Sequence[str]) -> str:
    # The prefix that all share would make any two alike.
    near = _nearest(name.removeprefix(PREFIX), [variable.removeprefix(PREFIX) for variable in known])
    return f"the nearest one is {PREFIX}{near}" if near else f"the settings are {', '.join(known)}"


def _join(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n".join([f"{len(problems)} problems in the configuration:", *(f"  {problem}" for problem in problems)])


def toml(value: object) -> str:
    """A value as TOML writes it; what TOML has no form for is shown as Python does."""
    match value:
        case bool():
            return str(value).lower()
        case str() | Path():
            return "".join(_toml_letter(letter) for letter in json.dumps(str(value), ensure_ascii=False))
        case Mapping():
            inside = ", ".join(f"{_toml_key(str(key))} = {toml(item)}" for key, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(toml(item) for item in value)}]"
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else repr(value)


def _toml_letter(letter: str) -> str:
    """A letter of a text; what is none, and a terminal may obey, by its number."""
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def grouped(group: Callable[[SettingKey], str]) -> Iterator[tuple[str, list[SettingKey]]]:
    """The settings by group, groups and settings in the order of the models."""
    for name in dict.fromkeys(group(key) for key in KEYS):
        yield name, [key for key in KEYS if group(key) == name]


def render(loaded: Loaded) -> str:
    """Every setting in force and where it came from, as TOML."""
    tree = loaded.settings.model_dump()
    rows: list[tuple[str, str]] = []
    for table, keys in grouped(lambda key: key.table):
        rows += [("", ""), (f"[{table}]", loaded.origin.get(table, ""))] if table else []
        for key in keys:
            value = _look_up(tree, key.name)
            entries = value if isinstance(value, Mapping) else {key.last: value}
            origin = "" if key.is_table else loaded.origin[key.name]
            rows += [(f"{_toml_key(name)} = {toml(item)}", origin) for name, item in entries.items()]
    width = max(len(code) for code, origin in rows if origin)
    lines = [f"{code:<{width}}  # {_printable(origin)}" if origin else code for code, origin in rows]
    return "\n".join(lines) + "\n"


def sources(loaded: Loaded) -> list[str]:
    """A line for each place that settings came from, the defaults aside, with what came from there."""
    places: dict[str, list[str]] = {}
    for kind in ("file", *_PLACES):
        for name, origin in loaded.origin.items():
            if origin.startswith(f"{kind} "):
                place, what = (origin, name) if kind == "file" else (_PLACES[kind], origin.partition(" ")[2])
                places.setdefault(place, []).append(what)
    return [f"settings from {place}: {', '.join(given)}" for place, given in places.items()]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
