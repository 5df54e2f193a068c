"""An authorization server: metadata, an authorization endpoint that always agrees, and a token endpoint with PKCE.

Tokens that are valid now are lines of a file, which an MCP server of `tests/support/mcp/shop.py` reads.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

CLIENT_ID, CLIENT_SECRET = "holdfast", "a secret with : and %"


@dataclass
class Issuer:
    """The state of the authorization server."""

    tokens: Path
    address: str = ""
    lifetime: int = 3600
    named_issuer: str | None = None
    """The `iss` of its answers to browsers, instead of its own."""
    refuses: bool = False
    requests: list[dict[str, str]] = field(default_factory=list)
    """The forms that its token endpoint got."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def code_for(self, query: dict[str, str]) -> str:
        """The address to which the browser of a person who agrees is sent."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.named_issuer or self.address}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def answer(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        with self.lock:
            self.requests.append(form)
            problem = "invalid_client" if self._is_stranger(authorization) else self._problem(form)
            if problem is not None:
                return 400, {"error": problem}
            return 200, self._new_tokens(form["grant_type"] != "client_credentials")

    def _is_stranger(self, authorization: str) -> bool:
        # By RFC 6749, both parts are encoded as in forms.
        pair = b"holdfast:a%20secret%20with%20%3A%20and%20%25"
        return authorization != f"Basic {base64.b64encode(pair).decode()}"

    def _problem(self, form: dict[str, str]) -> str | None:
        match form["grant_type"]:
            case _ if self.refuses:
                return "invalid_grant"
            case "client_credentials":
                return None
            case "refresh_token":
                # Each refresh token may be used once.
                is_known = form["refresh_token"] in self.refresh_tokens
                self.refresh_tokens.discard(form["refresh_token"])
                return None if is_known else "invalid_grant"
            case "authorization_code":
                asked = self.codes.pop(form["code"], None)
                verified = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(verified).rstrip(b"=").decode()
                is_same = asked is not None and (
                    asked["code_challenge"],
                    asked["redirect_uri"],
                ) == (
                    challenge,
                    form["redirect_uri"],
                )
                return None if is_same else "invalid_grant"
        return "unsupported_grant_type"

    def _new_tokens(self, with_refresh: bool) -> dict[str, Any]:
        token = secrets.token_urlsafe()
        with self.tokens.open("a") as file:
            file.write(f"{token}\n")
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        answer["expires_in"] = self.lifetime
        if with_refresh:
            answer["refresh_token"] = secrets.token_urlsafe()
            self.refresh_tokens.add(answer["refresh_token"])
        return answer

    def revoke_all(self) -> None:
        self.tokens.write_text("")


@contextmanager
def issuing(tokens: Path) -> Iterator[Issuer]:
    """An authorization server on a free port."""
    tokens.touch()
    issuer = Issuer(tokens)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/authorize":
                self.send_response(302)
                self.send_header("location", issuer.code_for(_single(url.query)))
                self.send_header("content-length", "0")
                self.end_headers()
            elif url.path == "/.well-known/oauth-authorization-server":
                self._send(200, issuer.metadata())
            else:
                self._send(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._send(*issuer.answer(_single(body), self.headers.get("authorization", "")))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _single(text: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(text, keep_blank_values=True).items()}
