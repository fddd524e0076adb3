"""`headway serve`: serve a model over HTTP."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway import progress
from headway.cli.app import Device, Dtype, ReportedExit, app, examples, load_bundle, need
from headway.cli.complete import complete_model
from headway.progress import progress_printer

if TYPE_CHECKING:
    from headway.serve.context import ServedModel

Served = Annotated[
    str,
    typer.Argument(
        help="a run (last, or its name), a folder or a hub id", metavar="MODEL", autocompletion=complete_model
    ),
]
Settings = Annotated[
    list[str] | None, typer.Argument(help="limits, as --print-limits lists them", metavar="KEY=VALUE…")
]
KeyFile = Annotated[Path | None, typer.Option(help="a file with one API key per line", metavar="FILE")]


@app.command(
    epilog=examples(
        "headway serve last",
        "headway serve smollm2",
        "headway serve ./model --port 9000 slots=16",
        "headway serve org/name --host 0.0.0.0 --key-file keys.txt",
        "headway serve --print-limits",
    )
)
def serve(
    model: Served = "last",
    settings: Settings = None,
    host: Annotated[
        str, typer.Option(help="address to listen on; every address except loopback needs a key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0: any free port", min=0, max=65535)] = 8000,
    key: Annotated[
        list[str] | None, typer.Option(help="an API key that clients must send; HEADWAY_API_KEY is safer")
    ] = None,
    key_file: KeyFile = None,
    name: Annotated[str, typer.Option(help="the model's name for clients")] = "",
    print_limits: Annotated[bool, typer.Option("--print-limits", help="print all limits and exit")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Annotated[bool, typer.Option("--json", help="log each request as a line of JSON")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="log only errors")] = False,
) -> None:
    """Serve a model over HTTP, with OpenAI's API."""
    from headway.config.toml import build, parse_overrides
    from headway.serve.limits import Limits

    if "=" in model:  # a setting, not a model
        model, settings = "last", [model, *(settings or [])]
    limits = build(Limits, parse_overrides(settings or []))
    if print_limits:
        _print(limits.table(), json_)
        return
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        need(package, "serving")
    from headway.serve.auth import KEY, open_socket, read_keys, url

    keys = read_keys(key or [], key_file, os.environ)
    say = progress_printer(quiet)
    auth = "" if not keys else f"$(head -1 {shlex.quote(str(key_file))})" if key_file and not key else f"${KEY}"
    hint = f"  export {KEY}=…  # the key that --key gave" if key else ""
    with open_socket(host, port, keys) as sock:
        from headway.generate.accel.dispatch import compile_kernels
        from headway.serve import metrics, server
        from headway.serve.context import ServedModel, choose_slots

        bundle = load_bundle(model, device, dtype, quiet)
        for note in filter(None, (*bundle.notes, bundle.generation.taken({}))):
            say(note)
        compile_kernels(bundle.model, choose_slots(limits, bundle.model))
        served = ServedModel(bundle, limits, name)
        progress.set_quiet(True)  # the log takes over; no request draws on the terminal
        number = server.serve(
            served,
            sock,
            keys,
            log=metrics.LOGS["json" if json_ else "quiet" if quiet else "lines"],
            ready=lambda: say(
                "\n".join([*_greeting(served, url(sock), auth, hint), f"  or open {url(sock)} in a browser"])
            ),
            say=say,
        )
    say("stopped")
    raise typer.Exit(ReportedExit(128 + number))


def _greeting(served: ServedModel, url: str, auth: str = "", hint: str = "") -> list[str]:
    """The server's address and an example request. `auth`: the key as a shell expression; `hint`: how to set it."""
    from headway.serve.page.examples import CALLS, examples

    example = examples(served)[0]
    slots = 0 if served.engine is None else served.engine.stats().slots
    at_once = "" if not slots else ", one sequence at a time" if slots == 1 else f", up to {slots} sequences at a time"
    lines = [
        f"{served.id} on {url}/v1 ({', '.join(served.capabilities())}){at_once}",
        *([hint] if hint else []),
        f"  {example.curl(url, auth)}",
    ]
    if example.capability in CALLS:
        first, *rest = example.python(url, auth=bool(auth))
        lines += [f"  python: {first}", *(f"    {line}" for line in rest)]
    return lines


def _print(table: list[tuple[str, float | None, str]], json_: bool) -> None:
    if json_:
        print(json.dumps({name: value for name, value, _ in table}))
        return
    for name, value, what in table:
        print(f"{name:16} {'auto' if value is None else format(value, ',.15g'):>12}  {what}")
