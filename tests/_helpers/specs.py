"""The presets of built-in specs, from the files themselves."""

from __future__ import annotations

import tomllib

from milbench.engine.spec import built_in_specs


def presets(name: str) -> list[str]:
    """Return the names of the presets of a built-in spec, the default first."""
    return list(tomllib.loads(built_in_specs()[name].read_text("utf-8")).get("presets", {}))
