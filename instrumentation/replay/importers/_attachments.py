"""Attachments of Claude Code: lines of its log that are sent as content of the user's message beside them.

They are sent as reminders, which the log keeps only as the values that they are made of; so their text is those values'
strings, one a line. Kinds that are shown to the user and never sent, and kinds that are not known, are left out.
"""

from collections.abc import Mapping

import orjson

from pager.text.references import strings

SENT = frozenset(
    [
        "agent_listing_delta",
        "agent_mention",
        "async_hook_response",
        "auto_mode",
        "auto_mode_exit",
        "budget_usd",
        "compact_file_reference",
        "compaction_reminder",
        "critical_system_reminder",
        "current_session_memory",
        "date_change",
        "deferred_tools_delta",
        "diagnostics",
        "directory",
        "edited_text_file",
        "file",
        "hook_additional_context",
        "hook_blocking_error",
        "hook_success",
        "invoked_skills",
        "mcp_instructions_delta",
        "mcp_resource",
        "nested_memory",
        "opened_file_in_ide",
        "output_style",
        "output_token_usage",
        "pdf_reference",
        "plan_file_reference",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "queued_command",
        "relevant_memories",
        "selected_lines_in_ide",
        "skill_discovery",
        "skill_listing",
        "task_reminder",
        "task_status",
        "team_context",
        "teammate_mailbox",
        "todo_reminder",
        "token_usage",
        "total_tokens_reminder",
        "ultrathink_effort",
        "verify_plan_reminder",
    ]
)
"""The kinds that Claude Code sends to the model."""

_NAMES = frozenset({"type", "uuid", "toolUseID", "hookEvent", "hookName", "addedNames"})
_SPOKEN_HOOKS = frozenset({"SessionStart", "UserPromptSubmit"})


def content_of(attachment: Mapping[str, object]) -> bytes | None:
    """The content that an attachment adds to a message, as JSON; None for one that is not sent."""
    kind, content = attachment.get("type"), attachment.get("content")
    if kind not in SENT:
        return None
    if kind == "queued_command" and isinstance(prompt := attachment.get("prompt"), str | list) and prompt:
        return orjson.dumps(prompt)
    media = _media(content)
    if media is not None:
        return orjson.dumps([media])
    told = {name: value for name, value in attachment.items() if name not in _NAMES}
    if kind == "hook_success":  # of these only what a hook says at the beginning of a session or a turn
        told = {"content": content} if attachment.get("hookEvent") in _SPOKEN_HOOKS else {}
    words = "\n".join(dict.fromkeys(strings(told)))
    text = f"<system-reminder>\n{words}\n</system-reminder>"
    return orjson.dumps([{"type": "text", "text": text}]) if words else None


def _media(content: object) -> dict[str, object] | None:
    """The picture or document that a file's content is; None for text."""
    if not isinstance(content, dict) or not isinstance(file := content.get("file"), dict):
        return None
    data = file.get("base64")
    if not isinstance(data, str):
        return None
    kind = "image" if content.get("type") == "image" else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": str(file.get("type", "")), "data": data}}
