"""`fedward-silo console`: this hospital's console in a browser, on this machine alone."""

from __future__ import annotations

import json
import signal
import threading
from typing import Annotated

import typer

from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption


def console(
    config: ConfigOption = DEFAULT,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 for any free one.")] = 0,
    form: FormatOption = TABLE,
) -> None:
    """Serve this hospital's console on this machine alone, and print a link that signs you in once, for five minutes.

    It shows what commands show, and approves or declines studies as they do. Ctrl-C ends it. The agent need not run.
    """
    from silo_agent.config import AgentConfig
    from silo_agent.console.serving import HospitalConsole

    AgentConfig.load(config)  # what is wrong with it is said here, and not on every page
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    served = HospitalConsole(config, port)
    link = served.link()
    typer.echo(json.dumps({"url": link}) if form is JSON else f"{link}\nCtrl-C ends the console.")
    served.run(stop)
