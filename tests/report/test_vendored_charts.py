"""The charts that pages embed are the file that their README describes, with the licences of what is in it."""

from __future__ import annotations

import hashlib
import json

from milbench.report.templating import TEMPLATES

VENDOR = TEMPLATES / "vendor"


def test_the_file_is_the_one_that_is_described_and_stays_small() -> None:
    content = (VENDOR / "plot.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() in (VENDOR / "README.md").read_text("utf-8")
    assert len(content) < 300_000
    assert b"</script" not in content.lower(), "it stands in a page"


def test_every_package_has_an_exact_version_and_its_licence() -> None:
    packages = json.loads((VENDOR / "package.json").read_text("utf-8"))["dependencies"]
    licences = (VENDOR / "LICENSES.txt").read_text("utf-8")
    for name, version in packages.items():
        assert version[0].isdigit()
        assert f"{name} {version}" in licences
    assert licences.count("Permission to use, copy, modify") >= 2
    assert "*/" not in licences, "it stands in a comment"
