"""The store for the bytes of new files, by `HOLDFAST_BLOBS`."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.domain.errors import ConfigurationError
from app.settings import Settings

if TYPE_CHECKING:
    from app.storage.files.s3_chunks import S3Chunks


def file_chunks(settings: Settings, env: Mapping[str, str]) -> "S3Chunks | None":
    """The bucket; None for the database. The library is an extra, so it is imported only when needed."""
    if settings.blobs is None:
        return None
    try:
        module = import_module("app.storage.files.s3_chunks")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "HOLDFAST_BLOBS is set, and the library for S3 isn't installed. Install it with "
            "`pip install 'holdfast-server[s3]'`, or unset HOLDFAST_BLOBS to store files in Postgres."
        ) from error
    url = urlsplit(settings.blobs)
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    store: S3Chunks = module.S3Chunks(
        url.netloc, url.path.strip("/") or None, allow_http=endpoint.startswith("http://")
    )
    return store
