"""The signals that stop a command."""

from __future__ import annotations

import signal

STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that stop a command; a terminal that is closed sends the last one."""
INTERRUPTED = 130
"""Exit code after one of them, as shells have it for Ctrl-C."""
