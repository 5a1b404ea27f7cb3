"""Refuse requests from pages of other sites, and for names an attacker's DNS points here (DNS rebinding)."""
import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

LOOPBACK = ('127.0.0.1', '::1', 'localhost')
HEADERS = {'Server': 'Landmark', 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer',
           'Cross-Origin-Resource-Policy': 'same-origin', 'X-Frame-Options': 'DENY'}


class Access:
    """Check the Host and Origin of every request.

    Args:
      host: address the server listens on.
      names: further names it is reached by, such as a proxy's.
    """

    def __init__(self, host: str, names: Iterable[str] = ()):
        self._everywhere = not is_loopback(host)
        own = {socket.gethostname().lower(), socket.getfqdn().lower()} if self._everywhere else set()
        self._names = {*LOOPBACK, host.lower(), *own, *(name.lower() for name in names)}

    def allows_host(self, header: str) -> bool:
        """Return whether a Host header is one of ours; an IP address is safe, since DNS cannot point it elsewhere."""
        match = re.fullmatch(r'(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d+)?', header, re.ASCII)
        if not match:
            return False
        name = match[1].strip('[]').lower()
        return name in self._names or self._everywhere and _is_address(name)

    def allows(self, request: web.Request) -> str:
        """Return why a request is refused, or nothing."""
        host = request.headers.get('Host', '')
        if len(request.headers.getall('Host', [])) != 1 or not self.allows_host(host):
            return f'Host {host[:100]!r} is not served here; start the server with --allow_host NAME to add a name.'
        origin = request.headers.get('Origin')
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f'Origin {origin[:100]!r} is another site, which may not use this server.'
        if request.headers.get('Sec-Fetch-Site') in ('cross-site', 'same-site') and (
                request.method != 'GET' or request.headers.get('Sec-Fetch-Mode') != 'navigate'):
            return 'Another site may not use this server.'
        return ''


def is_loopback(host: str) -> bool:
    return host == 'localhost' or _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
