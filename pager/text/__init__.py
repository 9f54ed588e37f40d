"""The text of pages: outlines, excerpts and references to it."""
