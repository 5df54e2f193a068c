"""Compressed bodies of model servers are decoded, however they are cut, in pieces of a maximum size."""

import gzip
import itertools
import zlib

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llm.http.content_encodings import MAX_DECODED_BYTES, Decoder

ANSWER = b'data: {"choices": []}\n\n' * 20


def raw_deflate(contents: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(contents) + compressor.flush()


MEMBERS = gzip.compress(ANSWER[:100]) + gzip.compress(b"") + gzip.compress(ANSWER[100:])
ENCODED = [
    ("gzip", gzip.compress(ANSWER)),
    ("x-gzip", gzip.compress(ANSWER)),
    ("gzip", MEMBERS),
    ("gzip", gzip.compress(ANSWER) + b"\0\0"),
    ("deflate", zlib.compress(ANSWER)),
    ("deflate", raw_deflate(ANSWER)),
    ("deflate", gzip.compress(ANSWER)),
]


def decoded(decoder: Decoder, *reads: bytes) -> list[bytes]:
    """The pieces after each read."""
    pieces = []
    for read in reads:
        decoder.feed(read)
        while piece := decoder.take():
            pieces.append(piece)
    return pieces


@given(st.sampled_from(ENCODED), st.lists(st.integers(0, 200), max_size=8))
def test_the_contents_do_not_depend_on_how_a_body_is_cut(
    body: tuple[str, bytes], cuts: list[int]
) -> None:
    encoding, whole = body
    bounds = sorted({0, len(whole), *(at for at in cuts if at < len(whole))})
    reads = [whole[start:end] for start, end in itertools.pairwise(bounds)]
    assert b"".join(decoded(Decoder(encoding), *reads)) == ANSWER


def test_a_piece_is_decoded_when_it_arrives() -> None:
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
    ours = Decoder("gzip")
    for word in (b"one", b"two"):
        sent = compressor.compress(word) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert decoded(ours, sent) == [word]


@pytest.mark.parametrize("end", [zlib.Z_SYNC_FLUSH, zlib.Z_FINISH], ids=["more follows", "end"])
@pytest.mark.parametrize("size", [MAX_DECODED_BYTES, MAX_DECODED_BYTES * 3 + 1, 10_000_000])
def test_a_small_body_with_huge_contents_is_decoded_in_pieces(size: int, end: int) -> None:
    compressor = zlib.compressobj(9, wbits=zlib.MAX_WBITS + 16)
    bomb = compressor.compress(b"\0" * size) + compressor.flush(end)
    ours, total = Decoder("gzip"), 0
    ours.feed(bomb)
    while piece := ours.take():
        assert len(piece) <= MAX_DECODED_BYTES
        total += len(piece)
    assert total == size


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b"data: plain\n\n", b"\x1f\x8bnot gzip", b"\x78\xffnot zlib"])
def test_a_body_that_is_not_compressed_is_an_error(encoding: str, body: bytes) -> None:
    with pytest.raises(httpx2.DecodingError, match=f"the body isn't {encoding}"):
        decoded(Decoder(encoding), body)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_an_unknown_encoding_is_an_error_unless_the_body_is_empty(encoding: str) -> None:
    ours = Decoder(encoding)
    assert decoded(ours, b"") == []
    with pytest.raises(httpx2.DecodingError, match=f"unknown encoding '{encoding}'"):
        decoded(ours, b"x")
