"""The bad link of the sweep over hosts: late, but whole and in order, until it is cut."""
import asyncio

import pytest

from benchmarks.robustness.bad_link import Link

MESSAGE = bytes(range(256)) * 2000  # several chunks


async def connected(link: Link):
    """A connection through the link to a server that sends everything back."""
    async def echo(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
    server = await asyncio.start_server(echo, '127.0.0.1', 0)
    near = await link.listen('127.0.0.1', 0, server.sockets[0].getsockname())
    return await asyncio.open_connection(*near.sockets[0].getsockname())


def test_what_is_sent_arrives_whole_and_in_order_also_where_chunks_are_lost():
    link = Link(delay=0.001, loss=0.1, seed=1)

    async def sent():
        reader, writer = await connected(link)
        writer.write(MESSAGE)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(-1), 60)
    assert asyncio.run(sent()) == MESSAGE
    assert 0 < link.lost < link.forwarded


def test_both_ends_see_a_cut_and_may_connect_again():
    link = Link()

    async def cut():
        reader, writer = await connected(link)
        writer.write(b'one')
        assert await asyncio.wait_for(reader.read(3), 60) == b'one'
        link.cut()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(3), 60)
        reader, writer = await connected(link)
        writer.write(b'two')
        assert await asyncio.wait_for(reader.read(3), 60) == b'two'
    asyncio.run(cut())
    assert link.cuts == 1


def test_a_host_that_refuses_is_one_whose_connections_end():
    async def refused():
        link = Link()
        nobody = await asyncio.start_server(lambda *_: None, '127.0.0.1', 0)
        address = nobody.sockets[0].getsockname()
        nobody.close()
        await nobody.wait_closed()
        near = await link.listen('127.0.0.1', 0, address)
        reader, _ = await asyncio.open_connection(*near.sockets[0].getsockname())
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 60)
    asyncio.run(refused())
