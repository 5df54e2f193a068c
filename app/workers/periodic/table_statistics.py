"""Analyses the tables of a new database soon after they got their first rows. Every process does it."""

import structlog

from app.storage.postgres.database import Database
from app.storage.postgres.table_statistics import analyze_filled
from app.workers.periodic.loop import PeriodicJob

log = structlog.get_logger(__name__)


class TableStatistics(PeriodicJob):
    def __init__(self, database: Database, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._database = database

    async def run_once(self) -> list[str]:
        """Analyse them; returns their names."""
        analyzed = await analyze_filled(self._database.pool)
        if analyzed:
            log.debug("tables_analyzed", tables=analyzed)
        return analyzed

    def log_outage(self, error: str) -> None:
        log.debug("table_statistics_failed", error=error)
