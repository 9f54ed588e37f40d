"""Reads which policies are to be played, with which options."""

import inspect
import tomllib
from collections.abc import Iterable, Mapping, Sequence

from instrumentation.replay.compare import Contender
from instrumentation.replay.knowing_policy import KNOWING
from pager.errors import ConfigError, PolicyError
from pager.paging.policy_choice import UNCHANGED
from pager.paging.policy_loader import load_policy, policy_names
from pager.paging.warmth.keep_warm import rule_of


def contenders(
    named: str, settings: Iterable[str], configured: tuple[str, Mapping[str, object]] = ("", {})
) -> list[Contender]:
    """The policies in a list with commas, with what ``--set`` says of them, above what is ``configured`` for one."""
    names = [name for part in named.split(",") if (name := part.strip())]
    if not names:
        known = ", ".join([*policy_names(), KNOWING])
        raise ConfigError(f"--policy {named!r} names no policy; there are {known}")
    options: dict[str, dict[str, object]] = {
        name: dict(configured[1]) if name == configured[0] else {} for name in names
    }
    for setting in settings:
        for name, key, value in _set(setting, names):
            options[name][key] = value
    found = [Contender(name, options[name]) for name in dict.fromkeys(names)]
    for one in found:
        if one.name != KNOWING:
            load_policy(one.name, one.options)  # says what is wrong with it before anything is played
    return found


RULES = ("auto", "2x280@20000", "3x285", KNOWING)
"""What prompts are kept warm by where no rule is named: ours, two simple ones, and one that knows the pauses."""


def kept_warm(found: Sequence[Contender], given: Iterable[str]) -> list[Contender]:
    """Each policy alone, and once more with each rule in these lists for keeping prompts warm; an empty list is RULES.

    Nothing is kept warm for a policy that changes nothing; ``knowing`` knows the pauses. Raises ConfigError.
    """
    named = [name for text in given for name in (text.split(",") if text else RULES)]
    rules = [name for part in dict.fromkeys(named) if (name := part.strip()) not in ("", "off")]
    for rule in rules:
        if rule != KNOWING:
            rule_of(rule)  # says what is wrong with it before anything is played
    return [row for one in found for row in (one, *(one._replace(keep_warm=rule) for rule in _rules_of(one, rules)))]


def _rules_of(contender: Contender, rules: Sequence[str]) -> Sequence[str]:
    if contender.name == UNCHANGED or not rules:
        return ()
    return (KNOWING,) if contender.name == KNOWING else rules


def _set(setting: str, names: Sequence[str]) -> list[tuple[str, str, object]]:
    """The options that one ``--set`` sets: for the policy that it names, else for all that have such an option."""
    left, equals, text = setting.partition("=")
    policy, _, key = left.strip().rpartition(".")
    if not equals or not key:
        raise ConfigError(f"--set {setting}: must be key=value or policy.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--set {setting}: {text!r} is no TOML value; text needs quotes") from error
    if policy and policy not in names:
        raise ConfigError(f"--set {setting}: {policy!r} is not among the policies to play: {', '.join(names)}")
    meant = [policy] if policy else [name for name in names if _takes(name, key)]
    if not meant:
        raise ConfigError(f"--set {setting}: none of {', '.join(names)} has an option {key!r}")
    return [(name, key, value) for name in meant]


def _takes(name: str, key: str) -> bool:
    """Whether a policy has an option; one that can't be built without options may have it."""
    if name == KNOWING:
        return False
    try:
        policy = load_policy(name)
    except PolicyError:
        return name in policy_names() or ":" in name
    return key in inspect.signature(type(policy)).parameters
