"""Analyses the tables of a new database soon after they got their first rows. Every process does it, until they have."""

import structlog

from app.storage.postgres.database import Database
from app.storage.postgres.table_statistics import Analyzed, analyze_filled
from app.workers.periodic.loop import PeriodicJob

SELDOM_SECONDS = 30.0
"""Between two looks at the tables that only runs with decisions write. Autovacuum analyses them after a minute."""

log = structlog.get_logger(__name__)


class TableStatistics(PeriodicJob):
    def __init__(self, database: Database, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._database = database

    async def run_once(self) -> Analyzed:
        """Analyse them. Looks seldom once the tables of all runs are analysed, and ends with the last table."""
        analyzed = await analyze_filled(self._database.pool)
        if analyzed.now:
            log.debug("tables_analyzed", tables=analyzed.now)
        if analyzed.has_all_of_each_run:
            self.interval = max(self.interval, SELDOM_SECONDS)
        if not analyzed.left:
            self.stop()
        return analyzed

    def log_outage(self, error: str) -> None:
        log.debug("table_statistics_failed", error=error)
