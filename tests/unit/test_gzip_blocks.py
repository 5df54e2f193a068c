"""Streams that share compressed pieces are whole gzip streams, each piece of which can be read at once."""

import gzip
import random
import zlib

from app.http.compression.gzip_blocks import GzipBlocks

PIECES = [
    f"data: {random.Random(number).random()} and again\n\n".encode() * 50 for number in range(5)
]


def test_each_stream_may_have_other_pieces() -> None:
    for pieces in (PIECES, PIECES[2:], [PIECES[0]] * 3, PIECES[::-1]):
        blocks = GzipBlocks()
        sent = [blocks.compressed(piece, is_last=False) for piece in pieces]
        sent.append(blocks.compressed(b"", is_last=True))
        assert gzip.decompress(b"".join(sent)) == b"".join(pieces)
        assert sum(map(len, sent)) < sum(map(len, pieces)) / 5


def test_a_piece_is_readable_before_the_next_one() -> None:
    blocks = GzipBlocks()
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for piece in PIECES:
        assert reader.decompress(blocks.compressed(piece, is_last=False)) == piece


def test_a_piece_that_many_streams_send_is_compressed_once() -> None:
    first, second = GzipBlocks(), GzipBlocks()
    for blocks in (first, second):
        blocks.compressed(PIECES[0], is_last=False)
    assert first.compressed(PIECES[1], is_last=False) is second.compressed(PIECES[1], is_last=False)
