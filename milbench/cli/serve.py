"""`milbench ui`: MLflow's own pages on the store."""

import os
import socket
import warnings
from typing import Annotated

import typer

from milbench._utils import extras
from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 5000,
    root: options.RootOption = options.HERE,
) -> int:
    """Serve MLflow's own pages on the store, until Ctrl-C.

    Example: milbench ui --port 8080
    """
    from milbench.engine.mirror import address, check_database, without_password

    place = Root(root)
    uri = address(place)
    if not uri.startswith("sqlite:"):
        raise UsageError(f"MLflow is on a server of its own: open {without_password(uri)}")
    if not place.database.exists():
        raise UsageError(
            f"there is no {place.database} yet: milbench run demo, or milbench sync, makes it"
        )
    check_database(place, uri)
    extras.load(
        "flask", "ui", "milbench ui"
    )  # of MLflow's full distribution, whose other module is there without it
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UsageError(
            f"cannot listen on --port {port}: {error.strerror}; name a port that is free"
        ) from None
    with listener:
        page = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
        options.say("serving until Ctrl-C", then=("open", page))
        # In this very process: the pages of `mlflow server` start later and outlive a killed parent.
        import uvicorn
        from mlflow.server import constants

        # In these variables `mlflow server` hands its options on to the process that answers.
        os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = uri
        os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
        os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = place.artifacts.as_uri()
        os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
        warnings.simplefilter("ignore")  # about libraries that MLflow uses
        # A request that is still open does not keep a server alive that was told to stop.
        config = uvicorn.Config(
            "mlflow.server.fastapi_app:app", log_level="warning", timeout_graceful_shutdown=2
        )
        uvicorn.Server(config).run(sockets=[listener])
    return 0
