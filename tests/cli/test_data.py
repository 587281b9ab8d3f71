from __future__ import annotations

import functools
import hashlib
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torchvision import models

from milbench.data.catalog import DATASETS
from milbench.networks.backbone import read_weights
from tests._helpers.command_line import Milbench


def test_a_damaged_data_file_is_named_with_what_was_expected(milbench: Milbench, tmp_path: Path) -> None:
    parts = DATASETS["mnist"].parts
    for file in parts:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(b"\0" * 100)
    words = ("run", "--loss", "exact", "--task", "extended-mnist", "--data-dir", str(tmp_path))
    complaint = milbench(*words).complaint()
    assert f"{tmp_path / parts[0].path} is damaged: expected MD5 6bbc9ace898e44ae57da46a324031adb, found" in complaint
    shown = milbench("data", "list", "--data-dir", str(tmp_path))
    assert shown.code == 1
    assert "damaged" in shown.out


def test_a_table_is_checked_with_the_settings_of_a_run(milbench: Milbench, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("id,has_x,f,g\n007,1,1,2\n007,1,2,3\n8,0,3,4\n9,1,4,5\n")
    columns = ("-p", "task.bag=id", "-p", "task.labels=has_*", "-p", "task.features=f")
    shown = milbench("data", "check", str(table), *columns)
    assert shown.code == 0, shown.err
    assert "3, with 4 instances" in shown.out
    for setting, complaint in {
        "bag=id": "-p bag=id: expected task.KEY=VALUE",
        "task.lables=has_*": "unknown parameter of features of .*t.csv 'lables'; did you mean 'labels'",
        "task.features=h": "t.csv has no column 'h'",
    }.items():
        assert re.search(complaint, milbench("data", "check", str(table), *columns, "-p", setting).complaint())
    (tmp_path / "s.csv").write_text("file,labels\na.wav,x\n")
    said = milbench("data", "check", str(tmp_path / "s.csv"), "-p", "task.bands=0").complaint()
    assert "s.csv: bands = 0 is wrong" in said


def test_published_weights_are_fetched_checked_and_used(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    torch.save(models.get_model("resnet18", weights=None).state_dict(), served / "net.pth")
    digest = hashlib.sha256((served / "net.pth").read_bytes()).hexdigest()
    (served / "net.pth").rename(served / f"net-{digest[:8]}.pth")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"

        def published(file: str) -> None:
            entry = SimpleNamespace(DEFAULT=SimpleNamespace(url=f"{address}/{file}"))
            monkeypatch.setattr(models, "get_model_weights", lambda _: entry)

        published(f"net-{digest[:8]}.pth")
        ran = milbench("data", "weights", "resnet18", "--data-dir", str(tmp_path))
        server.shutdown()
        assert ran.code == 0
        assert f"--network resnet18 -p network.weights=weights/net-{digest[:8]}.pth" in ran.out
        assert {"conv1.weight", "fc.bias"} <= {*read_weights(tmp_path / "weights" / f"net-{digest[:8]}.pth")}
        assert milbench("data", "weights", "resnet18", "--data-dir", str(tmp_path)).code == 0  # without the server
        (tmp_path / "weights" / f"net-{digest[:8]}.pth").write_text("<html>log in first</html>")
        complaint = milbench("data", "weights", "resnet18", "--data-dir", str(tmp_path)).complaint()
        assert f"net-{digest[:8]}.pth cannot be read as weights" in complaint
