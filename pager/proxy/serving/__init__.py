"""The server around the calls: routes, access, console, metrics, and the parts put together."""
