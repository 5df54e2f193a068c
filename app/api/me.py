"""Route that tells clients who they are, and what they need to know about the server."""

from fastapi import APIRouter, Request
from pydantic import Field

from app.api.schemas.common import ResponseModel
from app.distribution import VERSION
from app.http.access import AuthorizedRoute, HasKey
from app.http.auth import Authenticator

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/me", tags=["me"])


class MeOut(ResponseModel):
    """The caller, and facts about the server."""

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "subject": "ann",
                    "tenant": "default",
                    "scopes": ["decisions:write", "runs:read"],
                    "is_keyless": False,
                    "version": VERSION,
                    "public_url": "https://holdfast.example.com",
                    "stream_heartbeat": 5.0,
                }
            ]
        }
    }

    subject: str = Field(description="Name of the API key; the audit names it.")
    tenant: str = Field(description="The tenant of the API key. It sees only its own rows.")
    scopes: list[str] = Field(description="What the API key may do.")
    is_keyless: bool = Field(
        description="Whether the server has no API keys. Then every caller on its machine is `local`."
    )
    version: str = Field(description="Version of the server.")
    public_url: str | None = Field(description="`HOLDFAST_PUBLIC_URL`, to write links with.")
    stream_heartbeat: float = Field(
        description="Seconds between comments on an idle stream. After three without a byte, reconnect."
    )


@router.get("")
async def get_me(request: Request, principal: HasKey) -> MeOut:
    """Get the caller's subject, tenant and scopes. Needs an API key with any scopes."""
    authenticator: Authenticator = request.app.state.authenticator
    public_url = authenticator.web_access.public_url
    return MeOut(
        subject=principal.subject,
        tenant=principal.tenant,
        scopes=sorted(principal.scopes),
        is_keyless=authenticator.is_keyless,
        version=request.app.version,
        public_url=None if public_url is None else str(public_url),
        stream_heartbeat=request.app.state.stream_options.heartbeat,
    )
