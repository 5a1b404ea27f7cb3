"""Ports for servers that tests start."""
import contextlib
import itertools
import os
import socket

_tried = itertools.count(os.getpid() * 16)


def free_ports(n: int) -> list[int]:
    """Ports below those that the kernel hands out: nobody else is given one before the workers bind it."""
    found = []
    with open('/proc/sys/net/ipv4/ip_local_port_range') as file:
        room = int(file.read().split()[0]) - 10_000
    while len(found) < n:
        port = 10_000 + next(_tried) % room
        with socket.socket() as each, contextlib.suppress(OSError):  # of a server that is there always
            each.bind(('127.0.0.1', port))
            found.append(port)
    return found
