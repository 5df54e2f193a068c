"""The HTTP chunks of one read become one chunk; the body stays the same."""

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llm.http.chunk_coalescing import MAX_CHUNK_BYTES, ChunkCoalescer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunked(*pieces: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + LAST


def pass_through(*reads: bytes) -> list[bytes]:
    """The bytes that the HTTP stack gets for each read, and at the end of the connection."""
    chunks = ChunkCoalescer()
    chunks.begin()
    return [*(chunks.feed(read) for read in reads), chunks.flush()]


def bodies(reads: list[bytes]) -> list[bytes]:
    """The pieces in which an HTTP client sees the body."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    pieces = []
    for read in reads:
        if read:
            client.receive_data(read)
        while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            if isinstance(event, h11.EndOfMessage):
                return pieces
    raise AssertionError("the response didn't end")


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12),
    st.lists(st.integers(0, 700), max_size=12),
)
def test_the_body_does_not_depend_on_how_it_is_read(pieces: list[bytes], cuts: list[int]) -> None:
    whole = chunked(*pieces)
    bounds = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    reads = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    seen = bodies(pass_through(*reads))
    assert b"".join(seen) == b"".join(pieces)
    assert len(seen) <= len(reads)


def test_the_chunks_of_one_read_become_one_chunk() -> None:
    whole = chunked(b"a", b"b", b"c")
    assert bodies(pass_through(whole)) == [b"abc"]


def test_an_incomplete_chunk_waits_for_its_remaining_bytes() -> None:
    whole = chunked(b"abc", b"def")
    at = whole.index(b"ef")
    assert bodies(pass_through(whole[:at], whole[at:])) == [b"abc", b"def"]


def test_a_response_of_known_length_passes_unchanged() -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n5\r\nabc\r\n"
    assert pass_through(whole) == [whole, b""]


def test_an_interim_response_comes_before_the_head() -> None:
    whole = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + chunked(b"a", b"b")
    assert bodies(pass_through(whole)) == [b"ab"]


def test_the_next_response_of_a_connection_is_read_anew() -> None:
    chunks = ChunkCoalescer()
    for _ in range(2):
        chunks.begin()
        assert bodies([chunks.feed(chunked(b"a", b"b"))]) == [b"ab"]


@pytest.mark.parametrize(
    "body", [b"zz\r\nabc\r\n", b"3\r\nabcdef\r\n", b"3;ext=1\r\nabc\r\n0\r\n\r\n"]
)
def test_an_unknown_encoding_passes_unchanged(body: bytes) -> None:
    assert pass_through(HEAD + body) == [HEAD + body, b""]


def test_a_huge_chunk_is_not_waited_for() -> None:
    size = MAX_CHUNK_BYTES * 4
    begun = HEAD + b"%x\r\n" % size + b"x" * (MAX_CHUNK_BYTES + 1)
    rest = b"x" * (size - MAX_CHUNK_BYTES - 1) + b"\r\n" + LAST
    assert pass_through(begun, rest) == [begun, rest, b""]


def test_held_bytes_are_returned_when_the_connection_ends() -> None:
    cut = chunked(b"abc")[: -len(LAST) - 3]
    assert b"".join(pass_through(cut)) == cut
