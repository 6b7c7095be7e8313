"""What the consoles of coordinator and hospital have in common: links, sessions, headers, forms, layout, the server.

A console is a table of handlers: functions from a `ConsoleCall` to an answer. All that a browser may do wrong is
refused before a handler runs (`console`), and nothing on a page comes from elsewhere (docs/design/consoles.md).
"""

__all__ = ["blocks", "calls", "console", "serving", "sessions", "words"]
