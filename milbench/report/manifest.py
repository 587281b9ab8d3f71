"""What made a report, for programs: one JSON file beside the page."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from milbench._version import __version__
from milbench.report.provenance import Provenance
from milbench.report.study import Study

NAME = "manifest.json"


def write_manifest(folder: Path, study: Study, provenance: Provenance) -> None:
    """Write manifest.json: the comparison, what its cells have in common, their runs, and a digest of every file.

    shared: parameters, versions of code and libraries, and devices that all started cells have in common; what differs
    is in `cells`, and in `warnings` where it should not.
    """
    results = study.results
    found: dict[str, Any] = {
        "comparison": results.name,
        "title": results.title,
        "preset": results.preset,
        "command": results.command,
        "launched": results.launched,
        "store": results.tracking_uri,
        "rendered_by": f"milbench {__version__}",
        "data": provenance.data,
        "shared": provenance.shared,
        "warnings": provenance.warnings,
        "cells": [
            {
                "cell": line.cell,
                "what": f"{line.label} on {line.task}, seed {line.seed}",
                "status": line.status,
                "run": line.run_id,
                "origin": line.origin,
                "differs": line.telling,
            }
            for line in provenance.lines
        ],
        "sha256": {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    (folder / NAME).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
