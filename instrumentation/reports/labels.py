"""What reports call the parts of a prompt, and the forms of tools."""

PARTS = {
    "system": "system prompt (first call)",
    "resent": "system prompt (resent every call)",
    "schemas": "tools that are called",
    "unused_schemas": "tools that are never called",
    "user": "user messages",
    "assistant": "assistant messages",
    "results": "results in use",
    "stale": "stale results",
    "duplicates": "duplicate results",
    "superseded": "outdated file versions",
    "stubs": "put in by paging",
    "other": "other",
}

FORMS = {"whole": "full", "slim": "shortened", "deferred": "name only"}
"""The forms that a tool is sent in: as it came, with shorter descriptions, or without its parameters."""
