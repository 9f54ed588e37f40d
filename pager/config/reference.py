"""Writes the settings' own descriptions down: as docs/config.md and as an example file."""

from textwrap import wrap

from pager.config.loading import (
    FILE_NAME,
    NOT_SETTINGS,
    grouped,
    toml,
)
from pager.config.setting_keys import SettingKey
from pager.terminal import say

REGENERATE = "python -m pager.config.reference > docs/config.md"


def example() -> str:
    """An example file: every setting with its default and the reason for it."""
    lines = [f"# {FILE_NAME}: every setting with its default."]
    for table, keys in grouped(lambda key: key.table):
        lines += [] if not table or keys[0].is_table else ["", f"[{table}]"]
        for key in keys:
            lines += ["", *_comment(key.description), *_comment(f"Allowed: {key.words.allowed}."), *_setting(key)]
    return "\n".join(lines) + "\n"


def _setting(key: SettingKey) -> list[str]:
    if key.is_table:
        return [f"[{key.name}]", *(f"# {line}" for line in key.field.examples or ())]
    if key.words.default:
        return [f"# {key.last} = ({key.words.default})"]
    return [f"{key.last} = {toml(key.default)}"]


def _comment(text: str) -> list[str]:
    return wrap(text, width=100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def reference() -> str:
    """docs/config.md."""
    others = "\n".join(f"- `{name}`: {reason}." for name, reason in NOT_SETTINGS.items())
    parts = [_INTRODUCTION.format(file=FILE_NAME, regenerate=REGENERATE, others=others)]
    for table, keys in grouped(lambda key: key.parent):
        parts.append(f"## `[{table}]`\n" if table else "## Top level\n")
        parts += [_entry(key) for key in keys]
    return "\n".join(parts)


def _entry(key: SettingKey) -> str:
    default = key.words.default or f"`{toml(key.default)}`"
    lines = [f"### `{key.name}`\n", f"{key.description}\n", f"- Default: {default}", f"- Allowed: {key.words.allowed}"]
    lines += [f"- In a working folder: {needs}"] if (needs := key.words.guard.words) else []
    lines += [f"- Example: `{line}`" for line in key.field.examples or ()]
    return "\n".join([*lines, f"- Variable: `{key.variable}`; flag: `{key.flag}`\n"])


_INTRODUCTION = """\
# Configuration

<!-- Made from the settings' own descriptions: {regenerate} -->

Settings come from four places, the later wins:

1. the defaults below,
2. one file: the one that `--config FILE` or `CTXPAGER_CONFIG` names, else `{file}` in the working folder if you
   trust that folder (below), else `{file}` in the user's configuration folder,
3. environment variables: `CTXPAGER_` and the key in capitals with `_` for each dot, so `upstream.chat` is
   `CTXPAGER_UPSTREAM_CHAT`; an empty variable counts as not set,
4. flags: `--` and the key with `-` for each dot and `_`, so `upstream.chat` is `--upstream-chat`; `upstream.url` is
   plainly `--upstream`.

Variables and flags give text as it is and everything else as TOML writes it: `8787`, `["x-account"]`,
`{{ team-a = "TEAM_A_PROXY_KEY" }}`. A switch may also be `1`/`0`, `yes`/`no` or `on`/`off`. A later table or list
replaces an earlier one as a whole. A file that is named but missing, an unknown key, an unknown `CTXPAGER_` variable
and a value that is not allowed are errors everywhere. No secret is ever a setting: keys are named by the
environment variable that holds them. `ctxpager config` prints what is in force and where each value came from, and
`ctxpager serve` names at its start the places that settings came from.

A `{file}` in the working folder may have come with anything that was cloned or unpacked there. Until you trust the
folder, only its harmless settings count, over those of your own file: none that names code (your own policy),
leads calls or credentials elsewhere, or opens the proxy, its data or its keys to others. Each command says on standard
error which were ignored. In the lists below such settings are marked "needs trust".

The file in your own configuration folder holds in every working folder, so code that it names by a relative path is
looked for beside it.

- `ctxpager trust [DIR]` trusts the folder for as long as its file stays as it is, and prints what that allows; a
  changed file must be trusted again. What the file names (the code of a policy) is not checked: trust who changes it.
- `ctxpager trust --list` lists the trusted folders, `ctxpager trust --remove [DIR]` ends the trust.

These variables are not settings, and neither are those that a setting names as the holder of a key, nor those that
Kubernetes makes for a Service called ctxpager (`CTXPAGER_SERVICE_HOST`, `CTXPAGER_PORT=tcp://...` and the like):

{others}
"""


if __name__ == "__main__":
    say(reference(), end="")
