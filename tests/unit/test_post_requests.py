"""What is written for a request to a model server."""

from base64 import b64encode

import h11
import httpx2
import pytest

from app.llm.http.requests import PostRequest, Server

URL = "https://api.example.com/v1/chat?alt=sse"


def request(url: str = URL, **headers: str) -> PostRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PostRequest.to(httpx2.URL(url), httpx2.Headers(named))


def received(sent: PostRequest, body: bytes = b"{}") -> tuple[h11.Request, bytes]:
    """The request, and its body, as a server parses them."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(sent.with_body(body))
    head = server.next_event()
    assert isinstance(head, h11.Request)
    contents = b""
    while isinstance(event := server.next_event(), h11.Data):
        contents += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return head, contents


def headers_of(sent: PostRequest) -> dict[bytes, bytes]:
    head, _ = received(sent)
    found = list(head.headers)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_server_gets_the_address_the_headers_and_the_body() -> None:
    head, body = received(request(authorization="Bearer x", x_empty=""), b'{"n": 1}\r\n\r\n')
    assert (head.method, head.target) == (b"POST", b"/v1/chat?alt=sse")
    assert dict(head.headers) == {
        b"host": b"api.example.com",
        b"authorization": b"Bearer x",
        b"x-empty": b"",
        b"content-length": b"12",
    }
    assert body == b'{"n": 1}\r\n\r\n'


@pytest.mark.parametrize(
    "url, server, host",
    [
        ("http://localhost", Server("localhost", 80, False), b"localhost"),
        ("https://localhost", Server("localhost", 443, True), b"localhost"),
        ("http://localhost:8080/", Server("localhost", 8080, False), b"localhost:8080"),
        ("http://localhost:0", Server("localhost", 0, False), b"localhost:0"),
        ("http://[::1]:8080/v1", Server("::1", 8080, False), b"[::1]:8080"),
        ("https://[2001:db8::1]", Server("2001:db8::1", 443, True), b"[2001:db8::1]"),
        ("https://bücher.example/v1", Server("xn--bcher-kva.example", 443, True), b"xn--bcher-kva.example"),
        ("http://EXAMPLE.com:80/", Server("example.com", 80, False), b"example.com"),
    ],
)  # fmt: skip
def test_the_address_says_where_the_connection_leads(url: str, server: Server, host: bytes) -> None:
    sent = request(url)
    assert sent.server == server
    assert headers_of(sent)[b"host"] == host


def test_a_path_is_written_in_ascii() -> None:
    head, _ = received(request("http://localhost/models/größe 1?q=ü#part"))
    assert head.target == b"/models/gr%C3%B6%C3%9Fe%201?q=%C3%BC"
    assert received(request("http://localhost"))[0].target == b"/"


@pytest.mark.parametrize(
    "credentials, plain", [("us%40er:p%3Aw", b"us@er:p:w"), ("key", b"key:"), (":pw", b":pw")]
)
def test_name_and_password_of_an_address_replace_another_authorization(
    credentials: str, plain: bytes
) -> None:
    sent = request(f"https://{credentials}@localhost/", authorization="Bearer x")
    assert headers_of(sent)[b"authorization"] == b"Basic " + b64encode(plain)
    assert headers_of(sent)[b"host"] == b"localhost"


def test_another_host_and_a_closed_connection_can_be_asked_for() -> None:
    found = headers_of(request(Host="models.internal", Connection="close"))
    assert found[b"host"] == b"models.internal"
    assert found[b"connection"] == b"close"


def test_lengths_are_always_those_of_the_body() -> None:
    sent = request(**{"Content-Length": "9", "Transfer-Encoding": "chunked"})
    assert headers_of(sent) == {b"host": b"api.example.com", b"content-length": b"2"}


@pytest.mark.parametrize("value", ["a\r\nx: b", "a\nb", "a\0b", " a", "a ", "\ta", "a\r"])
def test_a_value_that_is_no_header_is_refused(value: str) -> None:
    with pytest.raises(httpx2.LocalProtocolError) as refused:
        request(x_key=value)
    assert str(refused.value) == "a header has characters that HTTP can't carry"


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "a\0"])
def test_a_name_that_is_no_header_is_refused(name: str) -> None:
    with pytest.raises(httpx2.LocalProtocolError):
        request(**{name: "value"})


def test_inner_blanks_and_other_characters_of_a_value_are_sent() -> None:
    value = "a \t b é".encode()
    sent = PostRequest.to(httpx2.URL(URL), httpx2.Headers([(b"x-title", value)]))
    assert headers_of(sent)[b"x-title"] == value


@pytest.mark.parametrize("url", ["ftp://localhost/", "//localhost/", "localhost:80/v1"])
def test_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(httpx2.UnsupportedProtocol):
        request(url)
