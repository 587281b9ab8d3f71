from __future__ import annotations

import pytest

from milbench.store.records import without_password


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://user:secret@host:5432/runs?sslmode=off", "postgresql://host:5432/runs"),
        ("http://token:secret@127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("https://example.org/mlflow", "https://example.org/mlflow"),
        ("sqlite:////a/b/mlflow.db?timeout=120", "sqlite:////a/b/mlflow.db"),
    ],
)
def test_an_address_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
