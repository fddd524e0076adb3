"""The verb that serves a model."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import Device, Dtype, Json, Quiet, app, examples, load_bundle, talker
from headway.errors import NotFoundError

Served = Annotated[str, typer.Argument(help="a run (last, its name), a folder or a hub id", metavar="MODEL")]
Settings = Annotated[list[str] | None, typer.Argument(help="limits; see --print-limits", metavar="KEY=VALUE…")]
KeyFile = Annotated[Path | None, typer.Option(help="a file with one key per line", metavar="FILE")]


@app.command(
    epilog=examples(
        "headway serve last",
        "headway serve ./model --port 9000 slots=16",
        "headway serve org/name --host 0.0.0.0 --key-file keys.txt",
        "headway serve --print-limits",
    )
)
def serve(
    model: Served = "last",
    settings: Settings = None,
    host: Annotated[str, typer.Option(help="address to listen on; others than loopback need a key")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one", min=0, max=65535)] = 8000,
    key: Annotated[
        list[str] | None, typer.Option(help="a key that clients must send; HEADWAY_API_KEY is safer")
    ] = None,
    key_file: KeyFile = None,
    name: Annotated[str, typer.Option(help="what clients call the model")] = "",
    print_limits: Annotated[bool, typer.Option("--print-limits", help="show every limit, and end")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a model to clients of OpenAI's API."""
    from headway.serve.limits import Limits
    from headway.settings import build, parse_overrides

    if "=" in model:  # the first of the settings, and no model
        model, settings = "last", [model, *(settings or [])]
    limits = build(Limits, parse_overrides(settings or []))
    if print_limits:
        _print(limits.table(), json_)
        return
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        _need(package)
    from headway.serve import address

    keys = address.read_keys(key or [], key_file, os.environ)
    say = talker(quiet)
    auth = "" if not keys else f"$(head -1 {shlex.quote(str(key_file))})" if key_file and not key else f"${address.KEY}"
    with address.open_address(host, port, keys) as sock:
        from headway.serve import log, run

        number = run.serve(
            load_bundle(model, device, dtype, quiet),
            sock,
            keys,
            limits,
            log=log.KINDS["json" if json_ else "quiet" if quiet else "lines"],
            name=name,
            ready=lambda service: say("\n".join(run.greeting(service, sock, auth))),
        )
    say("stopped")
    raise typer.Exit(128 + number)


def _need(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise NotFoundError("F003", f"serving needs the package {package}", "pip install 'headway[serve]'")


def _print(table: list[tuple[str, float, str]], json_: bool) -> None:
    if json_:
        print(json.dumps({name: value for name, value, _ in table}))
        return
    for name, value, what in table:
        print(f"{name:16} {value:>12,.15g}  {what}")
