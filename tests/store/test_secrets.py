"""Secrets in addresses: no command prints or stores them.

The address of an MLflow server or of a database may hold a user, a password or a token.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from milbench._utils.addresses import hide_in, page_of, without_secrets
from tests._helpers.command_line import TINY, Milbench, Ran

WORDS = ("run", "--task", TINY, "--loss", "exact")
SECRETS = ("s3cr", "t/x", "tok3n", "0wner")
"""Parts of the users, passwords and tokens of these addresses.

One password is s3cr@t/x, which a wrong parser may cut at its @.
"""
ADDRESSES = {
    "slash and at": "http://0wner:s3cr@t/x@127.0.0.1:9/path?key=tok3n",
    "plain": "http://0wner:s3cret@127.0.0.1:9",
    "encoded at": "http://0wner%40home:s3cr%40t@127.0.0.1:9/path",
    "token": "http://127.0.0.1:9/path?key=tok3n",
    "fragment": "http://127.0.0.1:9/#tok3n",
    "postgres": "postgresql://0wner:s3cret@127.0.0.1:9/db?password=tok3n",
    "mysql": "mysql+pymysql://0wner:s3cr@t/x@127.0.0.1:9/db",
    "sqlite": "sqlite:////dev/null/0wner:s3cret@disk/mlflow.db?key=tok3n",
    "unknown scheme": "nothing://0wner:s3cret@127.0.0.1:9",
    "no port": "http://0wner:s3cret@127.0.0.1:tok3n@/",
}


def check_no_secret(root: Path, *commands: Ran) -> None:
    """Check that commands have printed no secret, and that no file of the root has one."""
    for ran in commands:
        for secret in SECRETS:
            assert secret not in ran.out + ran.err
        assert "Traceback" not in ran.out + ran.err
    for file in root.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        for secret in SECRETS:
            assert secret.encode() not in content, file
            assert secret not in file.name


@pytest.mark.mirrored
@pytest.mark.timeout(240)
@pytest.mark.parametrize("address", ADDRESSES.values(), ids=[*ADDRESSES])
def test_no_run_and_no_sync_leaves_a_secret(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr("milbench.store.mirror.PATIENCE", 3.0)
    ran = milbench(*WORDS)
    synchronised = milbench("sync")
    assert ran.code == 0
    assert synchronised.code == 1
    check_no_secret(root, ran, synchronised)


SECRET_ADDRESS = ADDRESSES["slash and at"]


@pytest.mark.mirrored
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(f"cannot reach {SECRET_ADDRESS}"), id="quotes it"),
        pytest.param(
            RuntimeError("no host t, url /x@127.0.0.1, user 0wner:s3cr"), id="quotes a part"
        ),
        pytest.param(FileNotFoundError(2, "No such file", SECRET_ADDRESS), id="names a file"),
        pytest.param(ValueError(KeyError("tok3n")), id="is a cause"),
        pytest.param(
            ValueError(f"invalid literal: 's3cr@t/x' in {SECRET_ADDRESS}"), id="is a value error"
        ),
    ],
)
def test_no_message_of_a_library_tells_a_secret(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setenv("MLFLOW_TRACKING_URI", SECRET_ADDRESS)
    monkeypatch.setattr("milbench.store.mlflow_runs.Runs.experiment", fail)
    ran = milbench(*WORDS)
    assert "1 of 1 cell not in MLflow yet" in ran.out
    check_no_secret(root, ran)


@pytest.mark.mirrored
@pytest.mark.parametrize(
    "put",
    [
        pytest.param(Path.mkdir, id="a folder"),
        pytest.param(lambda path: path.write_bytes(b"x" * 5000), id="no database"),
    ],
)
def test_a_damaged_database_tells_no_secret_of_its_path(
    milbench: Milbench,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[Path], object],
) -> None:
    database = tmp_path / "0wner:s3cret@disk" / "mlflow.db"
    database.parent.mkdir()
    put(database)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    ran = milbench(*WORDS)
    synchronised = milbench("sync")
    assert "***@disk/mlflow.db is " in synchronised.out
    check_no_secret(root, ran, synchronised)


@pytest.mark.mirrored
def test_a_refused_connection_is_told_in_words(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ADDRESSES["plain"])
    monkeypatch.setattr("milbench.store.mirror.PATIENCE", 10.0)
    said = milbench(*WORDS).done()
    assert "(http://***@127.0.0.1:9: Connection refused)" in said


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        pytest.param(
            "http://user:s3cr@t/x@host:80/path?token=abc",
            "http://***@host:80/path?***",
            id="slash and at in the password",
        ),
        pytest.param("http://me%40home:pw@host", "http://***@host", id="encoded at in the user"),
        pytest.param("http://host:80/path", "http://host:80/path", id="nothing to hide"),
        pytest.param("http://host/path?a=b@c", "http://***@c", id="at in the query"),
        pytest.param("http://user:p?w#d@host/", "http://***@host/", id="? and # in the password"),
        pytest.param(
            "postgresql+psycopg2://u:p@h/db", "postgresql+psycopg2://***@h/db", id="postgres"
        ),
        pytest.param("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db", id="sqlite"),
        pytest.param("user:password@host", "***@host", id="no scheme"),
        pytest.param(
            "http://user:p%40w%40host/path", "http://***@host/path", id="encoded at before the host"
        ),
        pytest.param(
            "http://host/path%3Ftoken=abc", "http://host/path***", id="encoded question mark"
        ),
        pytest.param("http://host/path;token=abc", "http://host/path;***", id="semicolon"),
        pytest.param(
            "http://host/?mail=me@home&token=abc", "http://***@home***", id="mail in the query"
        ),
    ],
)
def test_credentials_and_the_query_of_an_address_are_hidden(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


def test_a_page_is_opened_without_password_and_query() -> None:
    assert page_of("http://user:s3cr@t/x@host:80/path?token=abc") == "http://host:80/path"


def test_a_password_with_quotes_is_hidden_in_a_text() -> None:
    assert hide_in("no http://u:a 'b\" <c>@host/x here") == "no http://***@host/x here"


def test_addresses_within_a_text_are_hidden() -> None:
    assert hide_in("no http://u:p@host/x?y here") == "no http://***@host/x?*** here"


def test_a_refused_address_of_a_cluster_hides_its_password(milbench: Milbench) -> None:
    complaint = milbench(*WORDS, "--cluster", "tcp://0wner:s3cr@t@host:1").complaint()
    assert "tcp://***@host:1" in complaint
    for secret in SECRETS:
        assert secret not in complaint
