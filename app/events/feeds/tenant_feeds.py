"""The shared feeds of this process: at most one per tenant and kind, while it has followers."""

from app.domain.ids import Tenant
from app.events.fanout.hub import Hub
from app.events.feeds.changes import changes_of
from app.events.feeds.shared_feed import ReadFeed, SharedFeed
from app.events.feeds.tickets import tickets_of
from app.storage.postgres.database import Database

DEFAULT_POLL_SECONDS = 2.0


class TenantFeeds:
    def __init__(self, database: Database, hub: Hub, *, poll: float = DEFAULT_POLL_SECONDS) -> None:
        """`poll`: seconds after which a ticket feed is read without a notification."""
        self.database = database
        self._hub = hub
        self._poll = poll
        self._changes: dict[Tenant, SharedFeed] = {}
        self._tickets: dict[Tenant, SharedFeed] = {}

    def changes(self, tenant: Tenant) -> SharedFeed:
        """Join the feed of a tenant's changes; leave it when done."""
        feed = _joined(self._changes, tenant, changes_of(self.database.pool, self._hub, tenant))
        feed.begin(0)
        return feed

    def tickets(self, tenant: Tenant) -> SharedFeed:
        """Join a tenant's ticket feed; leave it when done. A follower that has caught up begins it."""
        read = tickets_of(self.database, self._hub, tenant, poll=self._poll)
        return _joined(self._tickets, tenant, read)


def _joined(feeds: dict[Tenant, SharedFeed], tenant: Tenant, read: ReadFeed) -> SharedFeed:
    feed = feeds.get(tenant)
    if feed is None:

        def forget() -> None:
            if feeds.get(tenant) is made:
                del feeds[tenant]

        feed = made = feeds[tenant] = SharedFeed(read, forget)
    feed.join()
    return feed
