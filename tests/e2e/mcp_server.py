"""A server of the Model Context Protocol over standard input and output, with the sixty tools of a harbour office.

``python mcp_server.py JOURNAL`` serves; each call that reaches it becomes a line of JSON in the file ``JOURNAL``.
"""

import json
import sys
from pathlib import Path

LETTERS = "HB"
"""What a clearance begins with, which only the prose of a schema says."""

KINDS = {
    "berth": ("a berth along one of the quays", ["open", "occupied", "closed", "under_repair"]),
    "vessel": ("a vessel that calls at the harbour", ["expected", "anchored", "moored", "departed"]),
    "cargo": ("a lot of cargo on a quay or in a hold", ["declared", "landed", "inspected", "released"]),
    "container": ("a container in the stacks", ["stacked", "reserved", "reefer", "on_truck"]),
    "pilot": ("a pilot and the watches kept", ["on_watch", "aboard", "resting", "on_leave"]),
    "tug": ("a tug and what it has been ordered for", ["free", "ordered", "towing", "in_dock"]),
    "crane": ("a crane on its rails", ["idle", "working", "greased", "locked"]),
    "customs_file": ("a file that the customs keep on a lot", ["opened", "queried", "sealed", "closed"]),
    "crew_list": ("the list of those aboard a vessel", ["draft", "handed_in", "stamped", "withdrawn"]),
    "invoice": ("an invoice for dues and services", ["draft", "sent", "disputed", "paid"]),
    "incident": ("a report on something that went wrong", ["reported", "looked_into", "settled", "appealed"]),
    "tide_gauge": ("a gauge that measures the water", ["measuring", "silent", "drifting", "removed"]),
}
VERBS = {
    "find": "Finds every record of {what} that fits all of the conditions given, the newest first.",
    "show": "Shows one record of {what} with all that the office knows about it, its history included.",
    "enter": "Enters a new record of {what} into the book of the harbour office and gives back its number.",
    "change": "Changes a record of {what} that stands in the book, and keeps what stood there before.",
    "clear": "Clears a record of {what} under a clearance of the harbour master, after which it can't be changed.",
}
GUIDE = (
    " The book is shared by both watches, so read a record before you write to it. Times are those of the harbour. "
    "Do not use this to find out whether the office is open."
)
NUMBER = {
    "type": "string",
    "pattern": "^[A-Z]{3}[0-9]{5}$",
    "description": "The number of the record: three capital letters, then five digits. Numbers are never used twice.",
}
PERIOD = {
    "type": "object",
    "description": "A span of time, which lasts until a watch ends it by hand where its end is left out.",
    "properties": {
        "from": {"type": "string", "format": "date-time", "description": "The first moment, with its offset."},
        "until": {"type": "string", "format": "date-time", "description": "The moment after the last one."},
    },
    "required": ["from"],
    "additionalProperties": False,
}
BY = {
    "type": "object",
    "description": "Who asks for this. The name is printed in the book beside the entry.",
    "properties": {
        "name": {"type": "string", "minLength": 2, "description": "First and last name, as on the harbour pass."},
        "watch": {"type": "string", "enum": ["day", "night"], "description": "The watch on which it was asked for."},
    },
    "required": ["name", "watch"],
    "additionalProperties": False,
}
REMARK = {
    "type": "string",
    "maxLength": 400,
    "description": "Anything else that the next watch should know.",
}


def tools():
    """All tools, as they are listed."""
    return [_tool(verb, kind) for kind in KINDS for verb in VERBS]


def answer(name, arguments):
    """What a call gives back, and whether it failed."""
    verb, _, kind = name.partition("_")
    if verb == "clear" and not str(arguments.get("clearance", "")).startswith(f"{LETTERS}-"):
        return "The harbour master does not know this clearance.", True
    lines = [f"{kind} {arguments.get('number', 'AAA00001')}: {verb} is done."]
    lines += [f"{key} is {json.dumps(value, sort_keys=True)}" for key, value in sorted(arguments.items())]
    return "\n".join(lines), False


def _tool(verb, kind):
    what, states = KINDS[kind]
    properties, required = _parameters(verb, what, states)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": f"{verb}_{kind}", "description": VERBS[verb].format(what=what) + GUIDE, "inputSchema": schema}


def _parameters(verb, what, states):
    state = {
        "type": "string",
        "enum": states,
        "description": f"In which state {what} is. A state can't be skipped.",
    }
    clearance = {
        "type": "string",
        "pattern": "^[A-Z]{2}-[0-9]{4}$",
        "description": f"The clearance: {LETTERS} for this harbour, a hyphen, and the four digits of the day's list. "
        "Clearances of other harbours look alike and are refused.",
    }
    of_verb = {
        "find": ({"state": state, "period": PERIOD, "limit": _limit(what)}, ["state"]),
        "show": ({"number": NUMBER, "history": _history(what)}, ["number"]),
        "enter": ({"state": state, "period": PERIOD, "by": BY, "remark": REMARK}, ["state", "by"]),
        "change": ({"number": NUMBER, "state": state, "by": BY, "remark": REMARK}, ["number", "by"]),
        "clear": ({"number": NUMBER, "clearance": clearance, "remark": REMARK}, ["number", "clearance"]),
    }
    return of_verb[verb]


def _limit(what):
    said = f"How many records of {what} are given at most. Left out, there are twenty; more than a hundred never are."
    return {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": said}


def _history(what):
    said = f"Whether all that was ever changed in the record of {what} is shown as well, which can be long."
    return {"type": "boolean", "default": False, "description": said}


def _replied(method, params, journal):
    """The result of a request; None for a method that is not known."""
    match method:
        case "initialize":
            about = {"name": "harbour", "version": "1.0.0"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            arguments = params.get("arguments") or {}
            with journal.open("a") as file:
                file.write(json.dumps([params["name"], arguments]) + "\n")
            text, failed = answer(params["name"], arguments)
            return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


def _serve(journal):
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue  # a notification, or the answer to a question that was never put
        result = _replied(asked["method"], asked.get("params") or {}, journal)
        unknown = {"error": {"code": -32601, "message": f"there is no {asked['method']}"}}
        replied = unknown if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **replied}), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
