"""Streams that share compressed pieces are whole gzip streams, each piece of which can be read at once."""

import gzip
import random
import zlib

from app.http.compression.gzip_blocks import STORED_BYTES, GzipStream, OwnBlocks, shared_blocks

PIECES = [
    f"data: {random.Random(number).random()} and again\n\n".encode() * 50 for number in range(5)
]


def test_each_stream_may_have_other_pieces() -> None:
    for pieces in (PIECES, PIECES[2:], [PIECES[0]] * 3, PIECES[::-1]):
        blocks = GzipStream(shared_blocks)
        sent = [blocks.compressed(piece, is_last=False) for piece in pieces]
        sent.append(blocks.compressed(b"", is_last=True))
        assert gzip.decompress(b"".join(sent)) == b"".join(pieces)
        assert sum(map(len, sent)) < sum(map(len, pieces)) / 5


def test_a_piece_is_readable_before_the_next_one() -> None:
    blocks = GzipStream(shared_blocks)
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for piece in PIECES:
        assert reader.decompress(blocks.compressed(piece, is_last=False)) == piece


def test_a_piece_that_many_streams_send_is_compressed_once() -> None:
    first, second = GzipStream(shared_blocks), GzipStream(shared_blocks)
    for blocks in (first, second):
        blocks.compressed(PIECES[0], is_last=False)
    assert first.compressed(PIECES[1], is_last=False) is second.compressed(PIECES[1], is_last=False)


def test_the_beginning_of_a_stream_is_sent_as_it_is() -> None:
    stream = GzipStream(OwnBlocks())
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for piece in (b"one", b"", b"x" * (STORED_BYTES - 3)):
        sent = stream.compressed(piece, is_last=False)
        assert piece in sent
        assert reader.decompress(sent) == piece
    end = reader.decompress(stream.compressed(b"", is_last=True))
    assert (end, reader.eof) == (b"", True)


def test_a_long_stream_is_compressed_behind_its_beginning() -> None:
    stream = GzipStream(OwnBlocks())
    piece = PIECES[0] * 4
    sent = [stream.compressed(piece, is_last=number == 19) for number in range(20)]
    assert gzip.decompress(b"".join(sent)) == piece * 20
    assert sum(map(len, sent)) < STORED_BYTES + len(piece) * 20 / 5


def test_a_piece_that_exceeds_the_beginning_is_compressed() -> None:
    stream = GzipStream(OwnBlocks())
    piece = b"x" * (STORED_BYTES + 1)
    sent = stream.compressed(piece, is_last=True)
    assert gzip.decompress(sent) == piece
    assert len(sent) < STORED_BYTES / 5
