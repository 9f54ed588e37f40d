"""Every setting by its dotted name, with all that is derived from the models: variable, flag, words, default."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pager.config.settings import Notes, Settings

PREFIX = "CTXPAGER_"
FLAG_NAMES = {"upstream.url": "--upstream", "keep_warm.mode": "--keep-warm"}
SWITCH_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting by its dotted name, with everything that is derived from the model."""

    name: str
    field: FieldInfo

    @property
    def parent(self) -> str:
        """The dotted name of the group it belongs to; empty at the top."""
        return self.name.rpartition(".")[0]

    @property
    def last(self) -> str:
        """Its name inside its group."""
        return self.name.rpartition(".")[2]

    @property
    def table(self) -> str:
        """The TOML table it is in; a table of its own for a mapping."""
        return self.name if self.is_table else self.parent

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return variable_name(self.name)

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return flag_name(self.name)

    @property
    def words(self) -> Notes:
        """What it allows, in words."""
        return next(note for note in self.field.metadata if isinstance(note, Notes))

    @property
    def description(self) -> str:
        """What it does and why its default is what it is."""
        return self.field.description or ""

    @property
    def default(self) -> object:
        """Its default value."""
        return self.field.get_default(call_default_factory=True)

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false."""
        return self.field.annotation is bool

    @property
    def is_text(self) -> bool:
        """Whether a variable or flag gives it as it is, without quotes."""
        return self.field.annotation in {str, Path} or get_origin(self.field.annotation) is Literal

    @property
    def is_table(self) -> bool:
        """Whether its value is a mapping."""
        return get_origin(self.field.annotation) is Mapping

    def decode(self, text: str) -> object:
        """The value that a variable or flag means; text that means none is kept and fails the check."""
        if self.is_text:
            return text
        if self.is_switch:
            return SWITCH_WORDS.get(text.lower(), text)
        try:
            parsed = tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError:
            return text
        return parsed["value"] if len(parsed) == 1 else text


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[SettingKey]:
    """Every setting of a model and of the models in it."""
    for name, field in model.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from keys_of(part, f"{prefix}{name}.")
        else:
            yield SettingKey(prefix + name, field)


def flag_name(name: str) -> str:
    """The flag for a dotted key."""
    return FLAG_NAMES.get(name, "--" + name.replace(".", "-").replace("_", "-"))


def variable_name(name: str) -> str:
    """The environment variable for a dotted key."""
    return PREFIX + name.replace(".", "_").upper()


KEYS = tuple(keys_of(Settings))
