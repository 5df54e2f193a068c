"""Keys of threads: the client's own names. A key gives the thread's id, so that no row is read to find it."""

from uuid import UUID, uuid5

from app.domain.ids import Tenant, ThreadId

MAX_THREAD_KEY_LENGTH = 200
_NAMESPACE = UUID("7b3c1d52-6f0e-4f4a-9a51-0d2f6c8e4b19")
"""Never changes: threads that have a key are found by it."""


def thread_id_of_key(tenant: Tenant, key: str) -> ThreadId:
    """The id of the tenant's thread with this key: a UUID of version 5 of both.

    Neither text contains U+0000, so no two pairs have the same name.
    """
    return ThreadId(str(uuid5(_NAMESPACE, f"{tenant}\0{key}")))
