"""What retention has done so far, what it walks along, and a search in the metadata of threads.

The indexes of `runs` and `threads` lock their table while they are built. Where those tables are large,
make them before, under the same names, with CREATE INDEX CONCURRENTLY: they are left as they are then.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

HEADS = ("event_heads", "ticket_feed_heads")


def upgrade() -> None:
    op.create_table(
        "retention",
        sa.Column("duty", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.PrimaryKeyConstraint("duty", name=op.f("retention_pkey")),
    )
    for heads in HEADS:
        op.add_column(heads, sa.Column("pruned_to", sa.BigInteger(), nullable=True))
    op.create_index(
        "runs_finished",
        "runs",
        ["finished_at", "tenant", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'done'"),
        if_not_exists=True,
    )
    op.create_index(
        "threads_metadata",
        "threads",
        ["metadata"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'"),
        if_not_exists=True,
    )
    op.create_index(op.f("inputs_tenant_run_id_idx"), "inputs", ["tenant", "run_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("inputs_tenant_run_id_idx"), table_name="inputs")
    op.drop_index("threads_metadata", table_name="threads")
    op.drop_index("runs_finished", table_name="runs")
    for heads in reversed(HEADS):
        op.drop_column(heads, "pruned_to")
    op.drop_table("retention")
