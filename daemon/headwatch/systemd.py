"""Tells systemd how the service is: the sd_notify protocol, nothing where systemd did not start us."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send one state (`READY=1`) to the socket in NOTIFY_SOCKET."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address)
        channel.sendall(state.encode())
