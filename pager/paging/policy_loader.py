"""Finds and loads policies.

A policy is named by its file in ``policies`` (``keep_all``), by a file of the user's (``path/to/file.py:ClassName``) or
by an installed module (``package.module:ClassName``). Modules are imported by name when one is asked for, never before,
so that a broken policy hurts only those who use it.
"""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import cast

from pager.errors import OptionError, PolicyError
from pager.paging.policy import Policy

PACKAGE = "policies"
# What the code of a policy may raise by a mistake in it.
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)


def policy_names() -> list[str]:
    """The policies that exist, by file name; none is imported."""
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec else None
    modules = pkgutil.iter_modules(places or [])
    return sorted(module.name for module in modules if not module.ispkg and not module.name.startswith("_"))


def load_policy(name_or_ref: str, settings: Mapping[str, object] | None = None) -> Policy:
    """A new policy of that name, built with ``settings`` as its options; raises PolicyError."""
    place, colon, class_name = name_or_ref.rpartition(":")
    if colon:
        found = _named_class(name_or_ref, _import(name_or_ref, place), class_name)
    else:
        found = _only_class(name_or_ref, _import_shipped(name_or_ref))
    return _build(name_or_ref, found, settings or {})


def _import_shipped(name: str) -> ModuleType:
    names = policy_names()
    if name not in names:
        near = _nearest(name, names)
        raise PolicyError(
            f"policy {name!r}: there is none of that name{near}; there are {', '.join(names)}; one of your own is "
            "written path/to/file.py:ClassName or package.module:ClassName"
        )
    return _import(name, f"{PACKAGE}.{name}")


def _import(ref: str, place: str) -> ModuleType:
    try:
        return _import_file(ref, Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (ImportError, SyntaxError, OSError) as error:
        raise PolicyError(f"policy {ref!r}: {place or 'nothing'} can't be imported: {error}") from error
    except _FAULTS as error:
        raise PolicyError(f"policy {ref!r}: {place or 'nothing'} can't be imported: {_fault(error)}") from error


def _import_file(ref: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise PolicyError(f"policy {ref!r}: there is no file {path.absolute()}")
    # The path's hash keeps two files of one name apart.
    name = f"ctxpager_policy_{path.stem}_{sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path.absolute())
    # Dataclasses look their module up while it is still being imported.
    sys.modules[name] = module
    SourceFileLoader(name, str(path)).exec_module(module)
    return module


def _classes(module: ModuleType) -> dict[str, type]:
    """The public classes with ``choose`` that are defined in a module itself."""
    return {
        name: member
        for name, member in vars(module).items()
        if isinstance(member, type) and member.__module__ == module.__name__
        if not name.startswith("_") and callable(getattr(member, "choose", None))
    }


def _only_class(ref: str, module: ModuleType) -> type:
    classes = _classes(module)
    if len(classes) != 1:
        raise PolicyError(
            f"policy {ref!r}: {module.__file__} must have one public class with a method choose, but has "
            f"{', '.join(classes) or 'none'}"
        )
    return next(iter(classes.values()))


def _named_class(ref: str, module: ModuleType, name: str) -> type:
    found = vars(module).get(name)
    if isinstance(found, type):
        return found
    classes = _classes(module)
    what = "is not a class" if name in vars(module) else "does not exist"
    raise PolicyError(
        f"policy {ref!r}: {name!r} {what} in {module.__file__}{_nearest(name, classes)}; "
        f"its policies are {', '.join(classes) or 'none'}"
    )


def _build(ref: str, found: type, settings: Mapping[str, object]) -> Policy:
    _check_options(ref, inspect.signature(found), settings)
    try:
        policy = found(**settings)
    except (TypeError, ValueError) as error:
        raise OptionError(f"policy {ref!r}: {found.__name__} refuses its options: {error}") from error
    except _FAULTS as error:
        raise PolicyError(f"policy {ref!r}: {found.__name__} can't be made: {_fault(error)}") from error
    _check_protocol(ref, policy)
    return cast("Policy", policy)


def _check_options(ref: str, signature: inspect.Signature, settings: Mapping[str, object]) -> None:
    parameters = signature.parameters.values()
    named = {p.name: p for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    options = f"its options are {', '.join(named) or 'none'}"
    unknown = [name for name in settings if name not in named and not takes_any]
    if unknown:
        raise OptionError(f"policy {ref!r}: it has no option {unknown[0]!r}{_nearest(unknown[0], named)}; {options}")
    missing = [name for name, p in named.items() if p.default is p.empty and name not in settings]
    if missing:
        raise OptionError(f"policy {ref!r}: its option {missing[0]!r} has no default and must be given; {options}")


def _check_protocol(ref: str, policy: object) -> None:
    choose = getattr(policy, "choose", None)
    wanted = "a policy has a method choose(view) that returns a Decision"
    if not callable(choose):
        raise PolicyError(f"policy {ref!r}: {type(policy).__name__} has no method choose; {wanted}")
    if inspect.iscoroutinefunction(choose):
        raise PolicyError(f"policy {ref!r}: {type(policy).__name__}.choose is async; {wanted} at once")
    try:
        inspect.signature(choose).bind(None)
    except TypeError as error:
        raise PolicyError(
            f"policy {ref!r}: {type(policy).__name__}.choose can't take a view: {error}; {wanted}"
        ) from None


def _fault(error: BaseException) -> str:
    """A mistake in somebody's code in one line: what was raised, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # only needed for messages

    near = get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""
