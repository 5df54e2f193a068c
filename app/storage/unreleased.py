"""Upgrades databases of versions before the first release to the baseline.

Those versions had the revisions 0001 to 0022, then a first baseline and `0002_first_week`. The baseline replaces
them. A database at 0015 or later is brought to the baseline's schema and keeps all its rows.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, text

TOO_OLD = tuple(f"{number:04}" for number in range(1, 15))
BASELINE = "0001_baseline"

REVISION = """
SELECT CASE
    WHEN version_num = '0002_first_week' THEN '0024'
    WHEN version_num = '0001_baseline' AND to_regclass('schema_revisions') IS NULL THEN '0023'
    ELSE version_num
END FROM alembic_version
"""
"""The revision of a database. The first baseline had the name of today's and counts as 0023. What followed it
counts as 0024."""

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
    "0022": """
ALTER TABLE runs DROP COLUMN place;
""",
    "0023": """
DROP TABLE blobs;
ALTER TABLE retention RENAME COLUMN duty TO job;
UPDATE retention SET job = replace(job, 'forget_', 'delete_') WHERE job LIKE 'forget_%';
ALTER INDEX runs_in_line RENAME TO runs_queued;
ALTER INDEX runs_to_forget RENAME TO runs_to_delete;
ALTER TABLE messages RENAME COLUMN ran_with TO edited_arguments;
ALTER TABLE tool_calls RENAME COLUMN run_with TO edited_arguments;
ALTER TABLE tool_calls RENAME COLUMN kept TO unreported_outcome;
ALTER TABLE signals RENAME COLUMN answer TO response_status;
ALTER TABLE signals RENAME CONSTRAINT signals_answer_check TO signals_response_status_check;
UPDATE runs SET state = jsonb_set(
    state #- '{extensions,__runtime_remote_backend,told}',
    '{extensions,__runtime_remote_backend,last_sent_seq}',
    state #> '{extensions,__runtime_remote_backend,told}'
) WHERE state #> '{extensions,__runtime_remote_backend,told}' IS NOT NULL;
UPDATE tickets SET
    evidence = evidence - 'ran_with' || jsonb_build_object('arguments', evidence -> 'ran_with')
WHERE evidence -> 'ran_with' IS NOT NULL;
ALTER TABLE rollbacks RENAME CONSTRAINT rollbacks_stretch_check TO rollbacks_range_check;
ALTER TABLE failed_errands RENAME TO failed_followups;
ALTER TABLE failed_followups
    RENAME CONSTRAINT failed_errands_tenant_fkey TO failed_followups_tenant_on_behalf_of_fkey;
ALTER INDEX failed_errands_tenant_on_behalf_of_idx
    RENAME TO failed_followups_tenant_on_behalf_of_idx;
UPDATE pgq.pgqueuer SET entrypoint = 'followup' WHERE entrypoint = 'errand';
UPDATE pgq.pgqueuer_log SET entrypoint = 'followup' WHERE entrypoint = 'errand';
UPDATE pgq.pgqueuer_statistics SET entrypoint = 'followup' WHERE entrypoint = 'errand';
""",
    "0024": """
CREATE TABLE schema_revisions (
    revision text NOT NULL,
    previous text NOT NULL,
    is_additive boolean NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schema_revisions_pkey PRIMARY KEY (revision)
);
CREATE TABLE child_tickets (
    tenant text NOT NULL,
    run_id uuid NOT NULL,
    ticket uuid NOT NULL,
    via_run_id uuid NOT NULL,
    status text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT child_tickets_pkey PRIMARY KEY (tenant, run_id, ticket),
    CONSTRAINT child_tickets_status_check
        CHECK (status IN ('open', 'decided', 'expired', 'void')),
    CONSTRAINT child_tickets_tenant_run_id_fkey FOREIGN KEY (tenant, run_id)
        REFERENCES runs (tenant, id) ON DELETE CASCADE
);
CREATE INDEX child_tickets_open ON child_tickets (tenant, ticket) WHERE status = 'open';
""",
}
SUPPORTED = ("0015", *_STEPS)

_NAMED_BY_OLD_NAMES = """
SELECT conrelid::regclass::text AS table, conname,
    replace(replace(conname, 'failed_errands', 'failed_followups'), 'duty', 'job') AS new
FROM pg_constraint
WHERE conrelid IN ('failed_followups'::regclass, 'retention'::regclass)
    AND (conname LIKE 'failed_errands%' OR conname LIKE '%duty%')
"""
_RENAMED_FOLLOWUPS = {
    "tell_parent": "report_to_parent",
    "pass_on_messages": "forward_messages",
    "forget_child": "delete_child",
}
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
    connection.execute(text("DELETE FROM schema_revisions"))
    connection.execute(
        text("UPDATE alembic_version SET version_num = :baseline"), {"baseline": BASELINE}
    )


def _statements_after(found: str) -> Iterator[str]:
    """The statements one by one: a prepared statement holds only one."""
    scripts = [script for revision, script in _STEPS.items() if revision > found]
    for script in scripts:
        yield from (part for part in script.split(";\n") if part.strip())
