"""Makes the shipped table of models and prices from the one inside a ``litellm`` wheel.

    python -m pip download --no-deps litellm -d DIR
    python scripts/make_models.py DIR/litellm-*.whl --date 2026-11-16

Kept are chat and responses models with a window or a price. Prices become US dollars per million tokens. A row is
``[provider, window, output limit, input, output, cached, written, written for an hour, step, input factor, output
factor]``; the provider is an index into ``providers``, an unknown value is null, and trailing nulls are left off. A
prompt of more tokens than the step costs that many times as much, and so does its answer; of several steps the first is
kept. The same wheel and date always give the same bytes.
"""

import argparse
import hashlib
import json
import re
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "pager" / "pricing" / "data"
MEMBER = "litellm/model_prices_and_context_window_backup.json"
PRICES = (
    ("input_cost_per_token",),
    ("output_cost_per_token",),
    ("cache_read_input_token_cost", "input_cost_per_token_cache_hit"),
    ("cache_creation_input_token_cost",),
    ("cache_creation_input_token_cost_above_1hr",),
)
STEP = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
Row = list[int | float | None]


def per_million(entry: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    """The first of these prices that is there, rounded to where floating point noise begins."""
    found = next((entry[key] for key in keys if entry.get(key) is not None), None)
    if found is None:
        return None
    price = float(f"{found * 1e6:.6g}")
    return int(price) if price.is_integer() else price


def window(entry: dict[str, Any]) -> int | None:
    """The prompt's limit; the legacy ``max_tokens`` means it only where no output limit is given."""
    if entry.get("max_input_tokens"):
        return int(entry["max_input_tokens"])
    if entry.get("max_output_tokens"):
        return None
    return int(entry["max_tokens"]) if entry.get("max_tokens") else None


def step(entry: dict[str, Any]) -> Row:
    """The prompt's length from which on tokens cost more, and how many times as much: of the prompt, of the answer."""
    found = min((int(match[1]) for match in map(STEP.fullmatch, entry) if match), default=0)
    plain, said = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if not found or not plain:
        return [None, None, None]
    factor = float(f"{entry[f'input_cost_per_token_above_{found}k_tokens'] / plain:.6g}")
    dearer = entry.get(f"output_cost_per_token_above_{found}k_tokens")
    return [found * 1_000, factor, float(f"{dearer / said:.6g}") if dearer and said else 1.0]


def row(entry: dict[str, Any], providers: list[str]) -> Row:
    """One model's row, without trailing nulls."""
    limit = int(entry["max_output_tokens"]) if entry.get("max_output_tokens") else None
    values: Row = [providers.index(entry["litellm_provider"]), window(entry), limit]
    values += [per_million(entry, keys) for keys in PRICES] + step(entry)
    while values[-1] is None:
        values.pop()
    return values


def table(source: dict[str, Any], *, version: str, day: str) -> dict[str, Any]:
    """The shipped table."""
    useful = {
        name: entry
        for name, entry in sorted(source.items())
        if entry.get("mode") in {"chat", "responses"} and (window(entry) or per_million(entry, PRICES[0]) is not None)
    }
    providers = sorted({entry["litellm_provider"] for entry in useful.values()})
    rows = {name: row(entry, providers) for name, entry in useful.items()}
    return {"date": day, "source": f"litellm {version}", "providers": providers, "models": rows}


def main() -> None:
    """Write the table and say what NOTICE must hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="a wheel of litellm")
    parser.add_argument("--date", required=True, type=date.fromisoformat, help="the day the table is made, YYYY-MM-DD")
    options = parser.parse_args()
    with zipfile.ZipFile(options.wheel) as wheel:
        source = json.loads(wheel.read(MEMBER))
    made = table(source, version=options.wheel.name.split("-")[1], day=options.date.isoformat())
    path = DATA / "models.json"
    # One model a line: a refresh shows in a diff as the models that changed.
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(r, separators=(',', ':'))}" for name, r in made["models"].items()
    )
    head = json.dumps({key: made[key] for key in ("date", "source", "providers")}, separators=(",", ":"))
    path.write_text(f'{head[:-1]},"models":{{\n{lines}\n}}}}\n', encoding="utf-8")
    print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name, len(made["models"]), "models")


if __name__ == "__main__":
    main()
