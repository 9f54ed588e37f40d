"""Blocks of Anthropic's Messages, as a client and the provider write them."""

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def text(said):
    return {"type": "text", "text": said}


def thinking(said, signature="EqQB=="):
    return {"type": "thinking", "thinking": said, "signature": signature}
