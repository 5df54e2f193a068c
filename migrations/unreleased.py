"""The way to the baseline for databases of the versions before the first release.

Those versions had the revisions 0001 to 0021. The baseline replaces them. A database at 0015 or later is
brought to the baseline's schema and keeps all its rows.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, text

SUPPORTED = ("0015", "0016", "0017", "0018", "0019", "0020", "0021")
TOO_OLD = tuple(f"{number:04}" for number in range(1, 15))
BASELINE = "0001_baseline"

_STEPS = {
    "0016": """
CREATE TABLE server_secrets (
    name text NOT NULL,
    value bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT server_secrets_pkey PRIMARY KEY (name)
);
""",
    "0017": """
ALTER TABLE runs
    ADD COLUMN pause_requested_at timestamptz,
    ADD COLUMN pause_requested_by text,
    ADD COLUMN pause_reason text;
CREATE INDEX runs_resumed ON runs (updated_at)
    WHERE waiting_reason = 'manual_pause' AND pause_requested_at IS NULL;
""",
    "0018": """
CREATE TABLE pending_run_ends (
    tenant text NOT NULL,
    run_id uuid NOT NULL,
    log_end bigint NOT NULL,
    thread_state jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pending_run_ends_pkey PRIMARY KEY (tenant, run_id),
    CONSTRAINT pending_run_ends_tenant_run_id_fkey FOREIGN KEY (tenant, run_id)
        REFERENCES runs (tenant, id) ON DELETE CASCADE
);
CREATE INDEX pending_run_ends_created_at_idx ON pending_run_ends (created_at);
""",
    "0019": """
ALTER TABLE tickets
    ADD COLUMN event_name text,
    ADD COLUMN event_key text,
    ADD COLUMN event_number integer,
    DROP CONSTRAINT tickets_kind_check,
    ADD CONSTRAINT tickets_kind_check CHECK (kind IN ('approval', 'input', 'frontend',
        'outcome_unknown', 'limit', 'auth', 'child', 'event')),
    ADD CONSTRAINT tickets_event_check CHECK ((kind = 'event') = (event_name IS NOT NULL)
        AND (event_name IS NULL) = (event_key IS NULL)
        AND (event_name IS NULL) = (event_number IS NULL));
CREATE INDEX tickets_waiting_for_events ON tickets (tenant, event_name, event_key)
    WHERE kind = 'event' AND status = 'open';
CREATE TABLE signals (
    tenant text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    payload jsonb,
    fingerprint text NOT NULL,
    sent_by text NOT NULL,
    status text NOT NULL,
    answer text,
    kept_until timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT signals_pkey PRIMARY KEY (tenant, id),
    CONSTRAINT signals_status_check CHECK (status IN ('delivering', 'kept', 'answered')),
    CONSTRAINT signals_answer_check CHECK (answer IN ('kept', 'answered')),
    CONSTRAINT signals_answered_check CHECK (status = 'delivering' OR answer IS NOT NULL)
);
CREATE INDEX signals_kept ON signals (tenant, name, key, created_at) WHERE status = 'kept';
CREATE INDEX signals_created_at_idx ON signals (created_at);
CREATE TABLE signal_tickets (
    tenant text NOT NULL,
    signal_id text NOT NULL,
    ticket uuid NOT NULL,
    run_id uuid NOT NULL,
    thread_id uuid NOT NULL,
    position integer NOT NULL,
    outcome text NOT NULL,
    problem text,
    waited boolean NOT NULL,
    CONSTRAINT signal_tickets_pkey PRIMARY KEY (tenant, signal_id, ticket),
    CONSTRAINT signal_tickets_tenant_signal_id_fkey FOREIGN KEY (tenant, signal_id)
        REFERENCES signals (tenant, id) ON DELETE CASCADE,
    CONSTRAINT signal_tickets_outcome_check CHECK (outcome IN ('pending', 'answered',
        'payload_mismatch', 'already_decided', 'expired', 'void')),
    CONSTRAINT signal_tickets_problem_check
        CHECK ((outcome = 'payload_mismatch') = (problem IS NOT NULL))
);
CREATE INDEX signal_tickets_tenant_ticket_idx ON signal_tickets (tenant, ticket);
""",
    "0020": """
ALTER TABLE runs
    ADD COLUMN waiting_until timestamptz,
    ADD CONSTRAINT runs_waiting_until_check CHECK (
        (waiting_until IS NOT NULL) = (waiting_reason IS NOT DISTINCT FROM 'rate_limit'));
CREATE INDEX runs_rate_limited ON runs (waiting_until) WHERE waiting_reason = 'rate_limit';
""",
    "0021": """
CREATE INDEX runs_waiting_to_be_cancelled ON runs (updated_at)
    WHERE status = 'waiting' AND cancel_requested_at IS NOT NULL;
""",
}

_TO_BASELINE = """
DROP TABLE blobs;
ALTER TABLE retention RENAME COLUMN duty TO job;
ALTER INDEX runs_in_line RENAME TO runs_queued;
ALTER TABLE rollbacks RENAME CONSTRAINT rollbacks_stretch_check TO rollbacks_range_check;
ALTER TABLE failed_errands RENAME TO failed_followups;
ALTER TABLE failed_followups
    RENAME CONSTRAINT failed_errands_tenant_fkey TO failed_followups_tenant_on_behalf_of_fkey;
ALTER INDEX failed_errands_tenant_on_behalf_of_idx
    RENAME TO failed_followups_tenant_on_behalf_of_idx;
UPDATE pgq.pgqueuer SET entrypoint = 'followup' WHERE entrypoint = 'errand';
UPDATE pgq.pgqueuer_log SET entrypoint = 'followup' WHERE entrypoint = 'errand';
UPDATE pgq.pgqueuer_statistics SET entrypoint = 'followup' WHERE entrypoint = 'errand';
"""

_NAMED_BY_OLD_NAMES = """
SELECT conrelid::regclass::text AS table, conname,
    replace(replace(conname, 'failed_errands', 'failed_followups'), 'duty', 'job') AS new
FROM pg_constraint
WHERE conrelid IN ('failed_followups'::regclass, 'retention'::regclass)
    AND (conname LIKE 'failed_errands%' OR conname LIKE '%duty%')
"""
_RENAMED_FOLLOWUPS = {"tell_parent": "report_to_parent", "pass_on_messages": "forward_messages"}
_RENAME_FAILED = "UPDATE failed_followups SET name = :new WHERE name = :old"
_RENAME_QUEUED = """
UPDATE pgq.pgqueuer SET
    payload = convert_to(
        jsonb_set(convert_from(payload, 'UTF8')::jsonb, '{kind}', to_jsonb(CAST(:new AS text)))::text,
        'UTF8'
    ),
    dedupe_key = regexp_replace(dedupe_key, '^' || :old || ':', :new || ':')
WHERE entrypoint = 'followup' AND convert_from(payload, 'UTF8')::jsonb ->> 'kind' = :old
"""


def bridge(connection: Connection, found: str) -> None:
    """Bring a database from the old revision `found` to the baseline, in the caller's transaction."""
    for statement in _statements_after(found):
        connection.exec_driver_sql(statement)
    # Since Postgres 18 these include the names of NOT NULL constraints.
    for table, old, new in connection.execute(text(_NAMED_BY_OLD_NAMES)).all():
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME CONSTRAINT {old} TO {new}")
    for old, new in _RENAMED_FOLLOWUPS.items():
        for rename in (_RENAME_FAILED, _RENAME_QUEUED):
            connection.execute(text(rename), {"old": old, "new": new})
    connection.execute(
        text("UPDATE alembic_version SET version_num = :baseline"), {"baseline": BASELINE}
    )


def _statements_after(found: str) -> Iterator[str]:
    """The statements one by one: a prepared statement holds only one."""
    scripts = [script for revision, script in _STEPS.items() if revision > found]
    for script in (*scripts, _TO_BASELINE):
        yield from (part for part in script.split(";\n") if part.strip())
