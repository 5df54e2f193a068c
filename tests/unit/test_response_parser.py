"""Responses of model servers are parsed as another library does, however their bytes are cut."""

import itertools
from dataclasses import dataclass

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llm.http.response_parser import MAX_HEAD_BYTES, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 7\r\n\r\n"


@dataclass(frozen=True)
class Parsed:
    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool
    keeps_alive: bool


def parsed(*reads: bytes, at_end: bool = False) -> ResponseParser:
    """The parser after these reads, and perhaps the end of the connection."""
    parser = ResponseParser()
    for read in reads:
        parser.feed(read)
    if at_end:
        parser.end()
    return parser


def result(parser: ResponseParser) -> Parsed:
    assert parser.failure is None
    return Parsed(
        parser.status,
        parser.headers,
        parser.take_body(),
        parser.is_complete,
        parser.keeps_alive,
    )


def result_of_h11(whole: bytes, *, at_end: bool) -> Parsed:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(whole)
    if at_end:
        client.receive_data(b"")
    status, headers, body, is_complete = 0, {}, b"", False
    while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        match event:
            case h11.Response():
                status = event.status_code
                headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            case h11.Data():
                body += bytes(event.data)
            case h11.EndOfMessage():
                is_complete = True
            case h11.ConnectionClosed():
                break
    return Parsed(status, headers, body, is_complete, client.their_state is h11.DONE)


def chunk(piece: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(piece), extension, piece)


VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(str.encode)
PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)
CUTS = st.lists(st.integers(0, 700), max_size=12)
CONNECTION = st.sampled_from([b"", b"Connection: close\r\n", b"connection: Keep-Alive\r\n"])


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bool]:
    """The bytes of a response, and whether it ends with the connection."""
    interim = draw(st.sampled_from([b"", EARLY_HINTS, b"HTTP/1.1 100 Continue\r\n\r\n" * 2]))
    status = draw(st.sampled_from([b"200 OK", b"200", b"429 Too Many Requests", b"302 Found"]))
    values = draw(st.lists(VALUES, max_size=4))
    named = b"".join(b"X-%d: %b\r\n" % both for both in enumerate(values))
    head = interim + b"HTTP/1.1 " + status + b"\r\n" + named + draw(CONNECTION)
    pieces = draw(PIECES)
    extension = draw(st.sampled_from([b"", b";a=b", b';a="b;c"', b";a;b=c", b"  "]))
    trailer = draw(
        st.sampled_from([b"", b"x-trailer: 1\r\n", b"x-empty:\r\n", b"x: 1\r\ny: 2\r\n"])
    )
    match draw(st.sampled_from(["chunks", "length", "end"])):
        case "chunks":
            body = b"".join(chunk(piece, extension) for piece in pieces)
            ends = b"0\r\n" + trailer + b"\r\n"
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + body + ends, False
        case "length":
            body = b"".join(pieces)
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body, False
        case _:
            return head + b"\r\n" + b"".join(pieces), True


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(whole), *(at for at in cuts if at < len(whole))})
    return [whole[start:end] for start, end in itertools.pairwise(bounds)]


@given(responses(), CUTS)
def test_the_result_does_not_depend_on_how_the_bytes_are_cut(
    response: tuple[bytes, bool], cuts: list[int]
) -> None:
    whole, at_end = response
    expected = result_of_h11(whole, at_end=at_end)
    assert expected.is_complete
    assert result(parsed(*cut(whole, cuts), at_end=at_end)) == expected


@given(responses(), st.integers(0, 700))
def test_a_response_that_is_cut_off_is_not_complete(response: tuple[bytes, bool], at: int) -> None:
    whole, ends_with_connection = response
    whole = whole[: min(at, len(whole) - 1)]
    parser = parsed(whole, at_end=True)
    assert not parser.keeps_alive
    if not (ends_with_connection and parser.has_head):
        assert not parser.is_complete
        assert parser.failure == "the server closed the connection before the end of its response"


@given(responses(), st.integers(0, 700), st.binary(max_size=3), CUTS)
def test_the_result_of_a_damaged_response_does_not_depend_on_the_cuts(
    response: tuple[bytes, bool], at: int, instead: bytes, cuts: list[int]
) -> None:
    whole, at_end = response
    whole = whole[:at] + instead + whole[at + 1 :]
    in_one, in_pieces = (
        parsed(*reads, at_end=at_end) for reads in ([whole], cut(whole, [*cuts, at]))
    )
    assert in_one.take_body() == in_pieces.take_body()
    assert in_one.has_head == in_pieces.has_head
    assert in_one.is_complete == in_pieces.is_complete
    assert in_one.keeps_alive == in_pieces.keeps_alive
    assert (in_one.failure is None) == (in_pieces.failure is None)


# --- the head -------------------------------------------------------------------------------------


def test_values_of_one_name_are_joined_and_blanks_around_them_removed() -> None:
    head = OK + b"X-One: \t1 \r\nx-one:2\r\nx-none:\r\nX-Last: caf\xe9\r\ncontent-length: 0\r\n\r\n"
    assert parsed(head).headers == {
        "x-one": "1, 2",
        "x-none": "",
        "x-last": "café",
        "content-length": "0",
    }


def test_lines_may_end_with_a_line_feed_only() -> None:
    parser = parsed(b"HTTP/1.1 200 OK\nx: 1\ncontent-length: 3\n\nabc")
    assert (parser.is_complete, parser.take_body()) == (True, b"abc")


def test_a_folded_value_is_one_value() -> None:
    parser = parsed(OK + b"x-folded: one\r\n two\r\ncontent-length: 0\r\n\r\n")
    assert parser.headers["x-folded"].split() == ["one", "two"]


def test_headers_of_interim_responses_are_not_those_of_the_response() -> None:
    assert parsed(EARLY_HINTS + OK + b"\r\n").headers == {}


def test_a_head_may_have_its_maximum_size_with_the_interim_responses_before_it() -> None:
    fixed = EARLY_HINTS + OK + b"x: \r\ncontent-length: 3\r\n\r\n"
    padding = b"p" * (MAX_HEAD_BYTES - len(fixed))
    whole = fixed.replace(b"x: ", b"x: " + padding) + b"abc"
    for cuts in ([], [MAX_HEAD_BYTES], [MAX_HEAD_BYTES - 1], [10, 1000]):
        assert result(parsed(*cut(whole, cuts))).body == b"abc"


@pytest.mark.parametrize("cuts", [[], [10], [MAX_HEAD_BYTES], [MAX_HEAD_BYTES + 1]])
def test_a_larger_head_is_refused(cuts: list[int]) -> None:
    fixed = OK + b"x: \r\ncontent-length: 3\r\n\r\n"
    padding = b"p" * (MAX_HEAD_BYTES - len(fixed) + 1)
    whole = fixed.replace(b"x: ", b"x: " + padding) + b"abc"
    parser = parsed(*cut(whole, cuts))
    assert not parser.has_head
    assert parser.failure == "the head of the response is too large"


def test_interim_responses_without_end_are_refused() -> None:
    parser = parsed(*[EARLY_HINTS] * (MAX_HEAD_BYTES // len(EARLY_HINTS) + 1))
    assert parser.failure == "the head of the response is too large"


@pytest.mark.parametrize(
    "whole",
    [
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        OK + b"no colon\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 99999999999999999999999\r\n\r\n",
        OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\n",
    ],
)
def test_bytes_that_are_not_a_head_are_a_failure(whole: bytes) -> None:
    parser = parsed(whole)
    assert not parser.has_head
    assert parser.failure is not None
    assert parser.failure.startswith("the response isn't HTTP: ")


@pytest.mark.parametrize("headers", [b"", b"connection: upgrade\r\nupgrade: websocket\r\n"])
def test_a_change_of_the_protocol_is_a_failure(headers: bytes) -> None:
    parser = parsed(b"HTTP/1.1 101 Switching Protocols\r\n" + headers + b"\r\n\x81\x05hello")
    assert not parser.has_head
    assert parser.failure == "the server changes to a protocol that the request didn't ask for"


def test_an_offer_of_another_protocol_changes_nothing() -> None:
    whole = OK + b"connection: Upgrade\r\nupgrade: h2,h2c\r\ncontent-length: 3\r\n\r\nabc"
    parser = parsed(whole)
    assert (parser.is_complete, parser.keeps_alive, parser.take_body()) == (True, True, b"abc")


# --- the body -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize(
    "length", [b"", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"]
)
def test_a_status_without_a_body_ends_with_its_head(status: bytes, length: bytes) -> None:
    parser = parsed(b"HTTP/1.1 " + status + b"\r\n" + length + b"\r\n")
    assert (parser.is_complete, parser.keeps_alive) == (True, True)
    parser.feed(b"abc")
    assert (parser.take_body(), parser.keeps_alive, parser.failure) == (b"", False, None)


def test_the_contents_of_one_read_are_one_piece() -> None:
    parser = parsed(CHUNKED + chunk(b"a") + chunk(b"b"))
    assert parser.take_body() == b"ab"
    parser.feed(chunk(b"c") + LAST)
    assert parser.take_body() == b"c"
    assert parser.take_body() == b""


@pytest.mark.parametrize("extension", [b"  ", b"\t", b";a", b";a=b;c", b';a="b;c"'])
def test_blanks_and_extensions_after_the_size_of_a_chunk_are_ignored(extension: bytes) -> None:
    parser = parsed(CHUNKED + chunk(b"abc", extension) + LAST)
    assert (parser.failure, parser.is_complete, parser.take_body()) == (None, True, b"abc")


def test_contents_are_returned_before_their_chunk_has_ended() -> None:
    parser = parsed(CHUNKED + b"ffffff\r\nabc")
    assert (parser.take_body(), parser.is_complete, parser.keeps_alive) == (b"abc", False, False)


def test_a_body_ends_with_its_connection_only_without_a_length() -> None:
    for head in (OK + b"content-length: 9\r\n\r\n", CHUNKED):
        assert parsed(head, at_end=True).failure is not None
    assert parsed(OK + b"\r\n", at_end=True).is_complete


def test_chunks_count_where_a_length_is_named_too_and_the_connection_is_not_kept() -> None:
    both = [b"content-length: 100\r\n", b"transfer-encoding: chunked\r\n"]
    for lines in itertools.permutations(both):
        parser = parsed(OK + b"".join(lines) + b"\r\n" + chunk(b"abc") + LAST)
        assert (parser.is_complete, parser.keeps_alive) == (True, False)
        assert parser.take_body() == b"abc"


@pytest.mark.parametrize("encoding", [b"gzip", b"gzip, chunked", b"identity"])
def test_an_unknown_transfer_encoding_is_a_failure(encoding: bytes) -> None:
    parser = parsed(OK + b"transfer-encoding: " + encoding + b"\r\n\r\n" + chunk(b"abc") + LAST)
    assert not parser.has_head
    assert parser.failure is not None
    assert "unknown transfer-encoding" in parser.failure
    assert parser.take_body() == b""


@pytest.mark.parametrize(
    "body", [b"zz\r\nabc\r\n", b"3\r\nabcdef\r\n", b"\r\nabc", b"fffffffffffffffff\r\nabc"]
)
def test_a_chunk_that_is_none_is_a_failure_after_the_contents_before_it(body: bytes) -> None:
    parser = parsed(CHUNKED + chunk(b"kept") + body)
    assert parser.has_head
    assert parser.take_body().startswith(b"kept")
    assert parser.failure is not None
    assert not parser.is_complete
    parser.feed(chunk(b"more") + LAST)
    assert parser.take_body() == b""


def test_trailers_and_chunk_extensions_without_end_are_a_failure() -> None:
    for start in (CHUNKED + b"0\r\nx: ", CHUNKED + b"3;a="):
        parser = parsed(start, *[b"x" * 1024] * (MAX_HEAD_BYTES // 1024))
        assert parser.failure is None
        parser.feed(b"x")
        assert parser.failure == "the response has too many bytes that aren't contents"


def test_contents_between_chunk_extensions_allow_more_of_them() -> None:
    half = b"x" * (MAX_HEAD_BYTES // 2 + 1)
    parser = parsed(CHUNKED)
    for _ in range(3):
        parser.feed(b"3;a=" + half)
        parser.feed(b"\r\nabc\r\n")
    assert (parser.failure, parser.take_body()) == (None, b"abcabcabc")


# --- the connection -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, connection, keeps_alive",
    [
        (b"1.1", b"", True),
        (b"1.1", b"connection: keep-alive\r\n", True),
        (b"1.1", b"Connection: Close\r\n", False),
        (b"1.1", b"connection: keep-alive, close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"connection: Keep-Alive\r\n", True),
        (b"1.0", b"connection: close\r\n", False),
    ],
)
def test_version_and_head_say_whether_the_connection_is_kept(
    version: bytes, connection: bytes, keeps_alive: bool
) -> None:
    parser = parsed(b"HTTP/" + version + b" 200 OK\r\n" + connection + b"content-length: 0\r\n\r\n")
    assert (parser.is_complete, parser.keeps_alive) == (True, keeps_alive)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"\r\n0\r\n"])
@pytest.mark.parametrize(
    "whole", [OK + b"content-length: 3\r\n\r\nabc", CHUNKED + chunk(b"abc") + LAST]
)
def test_a_connection_with_more_than_the_response_is_not_kept(
    whole: bytes, more: bytes, is_cut: bool
) -> None:
    parser = parsed(whole, more) if is_cut else parsed(whole + more)
    assert (parser.is_complete, parser.keeps_alive, parser.failure) == (True, False, None)
    assert parser.take_body() == b"abc"
    assert parser.status == 200


def test_the_end_of_the_connection_after_a_response_is_no_failure() -> None:
    parser = parsed(CHUNKED + LAST, at_end=True)
    assert (parser.is_complete, parser.keeps_alive, parser.failure) == (True, False, None)
