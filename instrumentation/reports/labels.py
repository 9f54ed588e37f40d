"""What reports call the parts of a prompt, the forms of tools, and the reasons of cache misses."""

PARTS = {
    "system": "system prompt (first call)",
    "schemas": "tools that are called",
    "user": "user messages",
    "assistant": "assistant messages",
    "results": "results in use",
    "other": "other",
    "stubs": "put in by paging",
    "resent": "system prompt (resent every call)",
    "unused_schemas": "tools that are never called",
    "stale": "stale results",
    "superseded": "outdated file versions",
    "duplicates": "duplicate results",
}
"""In the order in which charts stack them: what a prompt needs at the bottom, what need not have been sent on top."""

FORMS = {"whole": "full", "slim": "shortened", "deferred": "name only"}
"""The forms that a tool is sent in: as it came, with shorter descriptions, or without its parameters."""

MISSES = {
    "pause": "pause",
    "tools": "tools changed",
    "model": "model changed",
    "settings": "settings changed",
    "history": "history edited",
    "repack": "repack",
    "short": "too short",
    "dropped": "dropped by the provider",
    "unknown": "unknown",
}
"""Why calls missed the provider's cache."""

COUNTABLE = ("pause", "repack")
"""The reasons of which there can be several: "2 pauses"."""
