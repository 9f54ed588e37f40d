"""Sets up the LiteLLM proxy in an environment of its own.

It shares no environment with ctxpager, because it holds back the version of a client that our tests need, and a slow
or odd dependency of one must not become the other's.
"""

import subprocess
import sys
import time
from pathlib import Path

import orjson

from benchmarks.shared.agent_session import KEY, MODEL

# Versions below have a known hole (CVE-2026-42208), two of them were malicious.
REQUIREMENT = "litellm[proxy]>=1.83.7"
FOLDER = Path(__file__).resolve().parents[2] / ".venv-litellm"
# Keeps it from asking the network for its price table, from telemetry, and from logging each call.
ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
READY = "/health/liveliness"


def install() -> None:
    """Build the environment unless it stands."""
    if (FOLDER / ".installed").exists():
        return
    print(f"building {FOLDER.name} with {REQUIREMENT}, once; this takes some minutes", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    subprocess.run([FOLDER / "bin/python", "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
    (FOLDER / ".installed").touch()


def version() -> str:
    """The version that is installed."""
    ask = "from importlib.metadata import version; print(version('litellm'))"
    return subprocess.run([FOLDER / "bin/python", "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def command(port: int, upstream_port: int, folder: Path) -> list[str]:
    """The command of the proxy, one worker, with one model that lives at our upstream."""
    address = f"http://127.0.0.1:{upstream_port}/v1"
    params = {"model": f"openai/{MODEL}", "api_base": address, "api_key": "sk-bench"}
    config = {
        "general_settings": {"master_key": KEY},
        "model_list": [{"model_name": MODEL, "litellm_params": params}],
        "litellm_settings": {"telemetry": False, "set_verbose": False, "request_timeout": 600},
    }
    path = folder / "litellm.yaml"
    # Every JSON document is a YAML document.
    path.write_bytes(orjson.dumps(config))
    program = str(FOLDER / "bin/litellm")
    return [program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]


def import_seconds() -> float:
    """How long ``import litellm`` takes, in seconds from starting Python."""
    began = time.perf_counter()
    environment = {**ENVIRONMENT, "PATH": "/usr/bin:/bin"}
    subprocess.run([FOLDER / "bin/python", "-c", "import litellm"], check=True, env=environment, capture_output=True)
    return time.perf_counter() - began
