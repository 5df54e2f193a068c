"""Headers of the console's responses. They keep out scripts, styles and pages of others."""

import re
from collections.abc import Mapping

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", re.ASCII)

COMMON: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ASSET: Mapping[str, str] = {
    **COMMON,
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
}


def of_shell(host: str, prefix: str) -> Mapping[str, str]:
    """The headers of a page. Scripts and styles come only from the folder of built files."""
    # A policy can't name an IPv6 address, and a malformed Host must not write policies.
    files = f"{host}{prefix}/console/assets/" if _HOST.fullmatch(host) else "'self'"
    policy = (
        "default-src 'none'",
        f"script-src {files}",
        f"style-src {files}",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return {
        **COMMON,
        "Content-Security-Policy": "; ".join(policy),
        "Cache-Control": "no-cache",
    }
