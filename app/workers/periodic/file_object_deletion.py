"""Deletes the objects of files whose blobs are marked as deleted, and then their rows."""

import structlog

from app import telemetry
from app.domain.errors import FilesUnavailable
from app.storage.files import blobs
from app.storage.files.chunk_stores import ChunkStore
from app.storage.postgres.database import Database
from app.workers.periodic.loop import PeriodicJob

SETTLE_SECONDS = 120.0
"""Longer than a request to the store takes: an upload that broke off may still write its last object."""

log = structlog.get_logger(__name__)


class FileObjectDeletion(PeriodicJob):
    """A row stays until its objects are deleted. So a crash or an outage leaves no object without a row."""

    def __init__(self, database: Database, store: ChunkStore, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._database, self._store = database, store

    async def run_once(self, older_than: float = SETTLE_SECONDS) -> int:
        """Delete the objects of all blobs that are marked since so many seconds; returns their number."""
        count = 0
        while not self.stopping.is_set():
            marked = await blobs.deleted(self._database.pool, self._store.place, older_than)
            for key in marked:
                try:
                    await self._store.remove(key)
                except FilesUnavailable:
                    log.warning("file_objects_not_deleted", blobs=len(marked))
                    return count
                await blobs.forget(self._database.pool, key)
                telemetry.retention_rows.labels(job="delete_file_objects").inc()
                count += 1
            if not marked:
                break
        return count

    def log_outage(self, error: str) -> None:
        log.warning("file_object_deletion_failed", error=error)
