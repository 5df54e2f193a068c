"""Forwards the bytes of a connection to another one, and back."""

import asyncio


async def forward_both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    upstream_reader: asyncio.StreamReader,
    upstream_writer: asyncio.StreamWriter,
) -> None:
    """Until both sides have ended. Then, or after an error, the upstream connection is closed."""
    try:
        async with asyncio.TaskGroup() as ways:
            ways.create_task(_forward(reader, upstream_writer))
            ways.create_task(_forward(upstream_reader, writer))
    finally:
        upstream_writer.transport.abort()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward the bytes of one side, and its end, to the other side."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
