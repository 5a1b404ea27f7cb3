"""Hosts of this machine's own: network namespaces, each with an address on one bridge. They share nothing but the disk.

Making them takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and iproute2.
"""
import contextlib
import subprocess
from collections.abc import Iterator

HERE = '10.77.0.254'  # this machine's own address on the bridge
_BRIDGE = 'landmark'


@contextlib.contextmanager
def network(count: int) -> Iterator[None]:
    """Make hosts 0 to `count` - 1, and remove them at the end.

    Raises:
      subprocess.CalledProcessError: they may not be made here, or those of another network are there.
    """
    run('ip', 'link', 'add', _BRIDGE, 'type', 'bridge')
    run('ip', 'address', 'add', f'{HERE}/24', 'dev', _BRIDGE)
    run('ip', 'link', 'set', _BRIDGE, 'up')
    try:
        for host in range(count):
            outer, settings = link(host), ('ip', '-n', _name(host))
            run('ip', 'netns', 'add', _name(host))
            run('ip', 'link', 'add', outer, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', _name(host))
            run('ip', 'link', 'set', outer, 'master', _BRIDGE, 'up')
            run(*settings, 'address', 'add', f'{address(host)}/24', 'dev', 'eth0')
            run(*settings, 'link', 'set', 'eth0', 'up')
            run(*settings, 'link', 'set', 'lo', 'up')
        yield
    finally:
        for host in range(count):  # a link by its name: the kernel removes those of a namespace later
            subprocess.run(['ip', 'link', 'delete', link(host)], check=False)
            subprocess.run(['ip', 'netns', 'delete', _name(host)], check=False)
        run('ip', 'link', 'delete', _BRIDGE)


def address(host: int) -> str:
    return f'10.77.0.{host + 1}'


def link(host: int) -> str:
    """Name this machine's end of a host's link, which can be set down or slowed."""
    return f'link{host}'


def on(host: int, *command: str) -> list[str]:
    """Return the command that runs this one on a host, in the same process."""
    return ['ip', 'netns', 'exec', _name(host), *command]


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def _name(host: int) -> str:
    return f'{_BRIDGE}{host}'
