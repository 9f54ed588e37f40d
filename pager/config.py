"""Reads the settings, the one module that does.

Values come in layers, the later wins: defaults, one file, the environment, flags. Every layer is checked by itself, so
that a wrong value is reported even where a later layer hides it, and all problems of a load are reported at once.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

from platformdirs import user_config_dir
from pydantic import ValidationError

from pager.errors import ConfigError
from pager.settings import KEYS, PREFIX, Identity, Key, Settings, Upstream, flag_name, variable_name

__all__ = ["KEYS", "Identity", "Key", "Loaded", "Settings", "Upstream", "example", "load", "reference", "render"]

FILE_NAME = "ctxpager.toml"
NOT_SETTINGS = {
    "CTXPAGER_CONFIG": "names the file to read, as `--config` does",
    "CTXPAGER_RECORDINGS": "where the tests and benchmarks find recorded requests",
    "CTXPAGER_KILLS": "how often the crash test kills the proxy",
}
# Kubernetes gives every pod such variables for a Service that is called ctxpager.
KUBERNETES = re.compile(r"CTXPAGER_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_\w+)=|CTXPAGER_PORT=(tcp|udp|sctp)://")
REGENERATE = "python -m pager.config > docs/config.md"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and for each dotted key where its value came from."""

    settings: Settings
    origin: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Layer:
    tree: Mapping[str, Any]
    origin: Callable[[str], str]


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
    return Loaded(Settings.model_validate(_nest(values)), origin)


def _file_layers(flag: object, cwd: Path, env: Mapping[str, str], config_dir: Path | None) -> list[_Layer]:
    named = str(flag or env.get("CTXPAGER_CONFIG") or "")
    if named:
        path = cwd / expanduser(named)  # noqa: PTH111 - pathlib's raises for an unknown user
        if not isfile(path):  # noqa: PTH113 - pathlib's raises where a folder is closed to us
            by = "--config" if flag else "CTXPAGER_CONFIG"
            raise ConfigError(f"file {path}: no such file, but {by} names it; name a file that exists or leave it out")
        return [_file_layer(path)]
    places = [cwd / FILE_NAME, (config_dir or Path(user_config_dir("ctxpager"))) / FILE_NAME]
    found = [path for path in places if isfile(path)]  # noqa: PTH113
    return [_file_layer(path) for path in found[:1]]


def _file_layer(path: Path) -> _Layer:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return _Layer(tomllib.loads(text), lambda _: f"file {path}")
    except OSError as error:
        raise ConfigError(f"file {path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"file {path}: line {line} is not UTF-8, which TOML must be") from None
    except tomllib.TOMLDecodeError as error:
        place = f"at line {text.count(chr(10)) + 1}, the end of the file"
        reason = str(error).replace("at end of document", place)
        raise ConfigError(f"file {path}: not valid TOML: {reason}") from None


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


def _winners(layers: Iterable[_Layer]) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    origin = {key.name: "default" for key in KEYS}
    for layer in layers:
        found = {key.name: _look_up(layer.tree, key.name) for key in KEYS}
        given = {name: value for name, value in found.items() if value is not _ABSENT}
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
    return re.sub(r'//[^"]*@|\?[^"]*', "(hidden)", _toml(value))


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


def _toml(value: object) -> str:
    """A value as TOML writes it; what TOML has no form for is shown as Python does."""
    match value:
        case bool():
            return str(value).lower()
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            inside = ", ".join(f"{_toml_key(str(key))} = {_toml(item)}" for key, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else repr(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _grouped(group: Callable[[Key], str]) -> Iterator[tuple[str, list[Key]]]:
    for name in dict.fromkeys(group(key) for key in KEYS):
        yield name, [key for key in KEYS if group(key) == name]


def render(loaded: Loaded) -> str:
    """Every setting in force and where it came from, as TOML."""
    tree = loaded.settings.model_dump()
    rows: list[tuple[str, str]] = []
    for table, keys in _grouped(lambda key: key.table):
        rows += [("", ""), (f"[{table}]", loaded.origin.get(table, ""))] if table else []
        for key in keys:
            value = _look_up(tree, key.name)
            entries = value if isinstance(value, Mapping) else {key.last: value}
            origin = "" if key.is_table else loaded.origin[key.name]
            rows += [(f"{_toml_key(name)} = {_toml(item)}", origin) for name, item in entries.items()]
    width = max(len(code) for code, origin in rows if origin)
    lines = [f"{code:<{width}}  # {_printable(origin)}" if origin else code for code, origin in rows]
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def example() -> str:
    """An example file: every setting with its default and the reason for it."""
    lines = [f"# {FILE_NAME}: every setting with its default."]
    for table, keys in _grouped(lambda key: key.table):
        lines += [] if not table or keys[0].is_table else ["", f"[{table}]"]
        for key in keys:
            lines += ["", *_comment(key.description), *_comment(f"Allowed: {key.words.allowed}."), *_setting(key)]
    return "\n".join(lines) + "\n"


def _setting(key: Key) -> list[str]:
    if key.is_table:
        return [f"[{key.name}]", *(f"# {line}" for line in key.field.examples or ())]
    if key.words.default:
        return [f"# {key.last} = ({key.words.default})"]
    return [f"{key.last} = {_toml(key.default)}"]


def _comment(text: str) -> list[str]:
    from textwrap import wrap  # only needed for documents

    return wrap(text, width=100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def reference() -> str:
    """docs/config.md."""
    others = "\n".join(f"- `{name}`: {reason}." for name, reason in NOT_SETTINGS.items())
    parts = [_INTRODUCTION.format(file=FILE_NAME, regenerate=REGENERATE, others=others)]
    for table, keys in _grouped(lambda key: key.parent):
        parts.append(f"## `[{table}]`\n" if table else "## Top level\n")
        parts += [_entry(key) for key in keys]
    return "\n".join(parts)


def _entry(key: Key) -> str:
    default = key.words.default or f"`{_toml(key.default)}`"
    lines = [f"### `{key.name}`\n", f"{key.description}\n", f"- Default: {default}", f"- Allowed: {key.words.allowed}"]
    lines += [f"- Example: `{line}`" for line in key.field.examples or ()]
    return "\n".join([*lines, f"- Variable: `{key.variable}`; flag: `{key.flag}`\n"])


_INTRODUCTION = """\
# Configuration

<!-- Made from the settings' own descriptions: {regenerate} -->

Settings come from four places, the later wins:

1. the defaults below,
2. one file: the one that `--config FILE` or `CTXPAGER_CONFIG` names, else `{file}` in the working folder, else
   `{file}` in the user's configuration folder,
3. environment variables: `CTXPAGER_` and the key in capitals with `_` for each dot, so `upstream.chat` is
   `CTXPAGER_UPSTREAM_CHAT`; an empty variable counts as not set,
4. flags: `--` and the key with `-` for each dot and `_`, so `upstream.chat` is `--upstream-chat`; `upstream.url` is
   plainly `--upstream`.

Variables and flags give text as it is and everything else as TOML writes it: `8787`, `["x-account"]`,
`{{ team-a = "TEAM_A_PROXY_KEY" }}`. A switch may also be `1`/`0`, `yes`/`no` or `on`/`off`. A later table or list
replaces an earlier one as a whole. A file that is named but missing, an unknown key, an unknown `CTXPAGER_` variable
and a value that is not allowed are errors, wherever they stand. No secret is ever a setting: keys are named by the
environment variable that holds them. `ctxpager config` prints what is in force and where each value came from.

These variables are not settings, and neither are those that a setting names as the holder of a key, nor those that
Kubernetes makes for a Service called ctxpager (`CTXPAGER_SERVICE_HOST`, `CTXPAGER_PORT=tcp://...` and the like):

{others}
"""


if __name__ == "__main__":
    sys.stdout.write(reference())
