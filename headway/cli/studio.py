"""`headway studio`: watch runs, start them, try and look inside models, in a browser on this machine."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app, examples, need
from headway.config.recipe import RUNS
from headway.progress import progress_printer


@app.command(epilog=examples("headway studio", "headway studio --port 9000 --open", "headway studio --out experiments"))
def studio(
    out: Annotated[Path, typer.Option(help="the folder with the runs", metavar="FOLDER")] = Path(RUNS),
    port: Annotated[int, typer.Option(help="port to listen on; 0: any free port", min=0, max=65535)] = 8400,
    open_: Annotated[bool, typer.Option("--open", help="open the page in the default browser")] = False,
    json_: Annotated[bool, typer.Option("--json", help="print the address as JSON")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print only the address")] = False,
) -> None:
    """Open the studio: all runs and models in a browser. It listens on this machine only."""
    for package in ("fastapi", "uvicorn"):
        need(package, "the studio")
    from headway.serve.auth import listen, url
    from headway.studio.context import Studio
    from headway.studio.server import serve
    from headway.studio.token import read_token, state_folder

    say, state = progress_printer(quiet), state_folder()
    token = read_token(state)
    with listen("127.0.0.1", port) as sock:
        address = f"{url(sock)}/?token={token}"

        def ready() -> None:
            typer.echo(json.dumps({"address": address, "runs": str(out)}) if json_ else address)
            say("open this address in a browser; Ctrl-C stops the studio, runs that it started go on")
            if open_:
                webbrowser.open(address)

        serve(Studio(out, token, state), sock, ready)
    say("stopped")
