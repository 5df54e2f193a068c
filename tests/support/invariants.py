"""Rules that hold for all rows at any time, checked by SQL."""

import asyncpg

_BROKEN = {
    "a thread's messages have a gap": """
        SELECT t.id::text FROM threads t LEFT JOIN messages m
            ON m.tenant = t.tenant AND m.thread_id = t.id
        GROUP BY t.tenant, t.id HAVING t.next_message_seq <> count(m.seq) + 1
            OR (count(m.seq) > 0 AND (min(m.seq) <> 1 OR max(m.seq) <> count(m.seq)))""",
    "a thread's events have a gap": """
        SELECT h.thread_id::text FROM event_heads h
            JOIN threads t ON t.tenant = h.tenant AND t.id = h.thread_id
            LEFT JOIN events e ON e.tenant = h.tenant AND e.thread_id = h.thread_id
        WHERE h.pruned_to IS NULL
        GROUP BY h.tenant, h.thread_id
        HAVING h.next_seq <> coalesce(sum(e.seq - coalesce(e.from_seq, e.seq) + 1), 0) + 1
            OR (count(e.seq) > 0 AND (min(coalesce(e.from_seq, e.seq)) <> 1
                OR max(e.seq) <> h.next_seq - 1))""",
    "a thread that was deleted has events": """
        SELECT DISTINCT e.thread_id::text FROM events e WHERE NOT EXISTS (
            SELECT FROM threads t WHERE t.tenant = e.tenant AND t.id = e.thread_id)""",
    "a thread miscounts its queue": """
        SELECT t.id::text FROM threads t WHERE t.queue_length <> (SELECT count(*) FROM runs r
            WHERE r.tenant = t.tenant AND r.thread_id = t.id AND r.status = 'created'
            AND NOT r.admitted)""",
    "a thread names another run than the one that occupies it": """
        SELECT t.id::text FROM threads t WHERE t.open_run_id IS DISTINCT FROM (SELECT r.id FROM runs r
            WHERE r.tenant = t.tenant AND r.thread_id = t.id AND r.admitted AND r.status <> 'done')""",
    "runs queue for a thread that is free": """
        SELECT t.id::text FROM threads t WHERE t.open_run_id IS NULL AND t.queue_length > 0""",
    "an event head names a run that doesn't execute under that attempt": """
        SELECT h.thread_id::text FROM event_heads h LEFT JOIN runs r
            ON r.tenant = h.tenant AND r.id = h.run_id
        WHERE h.run_id IS NOT NULL AND (r.status <> 'running' OR r.attempt <> h.attempt)""",
    "an executing run has no event head": """
        SELECT r.id::text FROM runs r JOIN event_heads h
            ON h.tenant = r.tenant AND h.thread_id = r.thread_id
        WHERE r.status = 'running' AND h.run_id IS DISTINCT FROM r.id""",
    "a run that doesn't execute keeps an owner": """
        SELECT id::text FROM runs WHERE status <> 'running' AND owner IS NOT NULL""",
    "a done run keeps calls, inputs or open tickets": """
        SELECT r.id::text FROM runs r WHERE r.status = 'done' AND (
            EXISTS (SELECT FROM tool_calls c WHERE c.tenant = r.tenant AND c.run_id = r.id)
            OR EXISTS (SELECT FROM inputs i WHERE i.tenant = r.tenant AND i.run_id = r.id
                AND i.status = 'pending')
            OR EXISTS (SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
                AND t.status = 'open'))""",
    "the last event of a done run isn't its run_finish": """
        SELECT r.id::text FROM runs r WHERE r.status = 'done' AND (
            SELECT e.event_type || (e.body::jsonb #>> '{termination,type}') FROM events e
            WHERE e.tenant = r.tenant AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1
        ) IS DISTINCT FROM 'run_finish' || (r.termination ->> 'type')""",
    "the lifecycle of a done run isn't done": """
        SELECT r.id::text FROM runs r WHERE r.status = 'done' AND r.state #>>
            '{extensions,__runtime.run_lifecycle,status}' IS DISTINCT FROM 'done'""",
    "the response of a done run isn't its final output": """
        SELECT r.id::text FROM runs r WHERE r.status = 'done' AND coalesce(r.final_output, '')
            IS DISTINCT FROM (SELECT e.body::jsonb #>> '{result,response}' FROM events e
            WHERE e.tenant = r.tenant AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1)""",
    "hooks are owed to a run that isn't done": """
        SELECT p.run_id::text FROM pending_run_ends p JOIN runs r
            ON r.tenant = p.tenant AND r.id = p.run_id WHERE r.status <> 'done'""",
    "a run's input range has other messages than its ids": """
        SELECT r.id::text FROM runs r WHERE r.input_ids <> coalesce((
            SELECT array_agg(m.message_id ORDER BY m.seq) FROM messages m
            WHERE m.tenant = r.tenant AND m.thread_id = r.thread_id
                AND m.seq BETWEEN r.input_from AND r.input_to), '{}')""",
    "a run's output ids aren't its own messages": """
        SELECT r.id::text FROM runs r WHERE r.output_ids <> coalesce((
            SELECT array_agg(m.message_id ORDER BY m.seq) FROM messages m
            WHERE m.tenant = r.tenant AND m.thread_id = r.thread_id AND m.produced_by_run = r.id
                AND m.visibility = 'all'), '{}')""",
    "an answer in the log has no message_done, or several": """
        SELECT m.produced_by_run::text FROM messages m
            JOIN event_heads h ON h.tenant = m.tenant AND h.thread_id = m.thread_id
        WHERE m.role = 'assistant' AND m.produced_by_run IS NOT NULL AND h.pruned_to IS NULL
            AND EXISTS (SELECT FROM runs r WHERE r.tenant = m.tenant
                AND r.id = m.produced_by_run AND r.thread_id = m.thread_id)
            AND (SELECT count(*) FROM events e WHERE e.tenant = m.tenant
                AND e.thread_id = m.thread_id AND e.run_id = m.produced_by_run
                AND e.event_type = 'message_done'
                AND e.body::jsonb #>> '{message,id}' = m.message_id::text
                AND e.body::jsonb #>> '{message,seq}' = m.seq::text) <> 1""",
    "a result is in the log twice": """
        SELECT m.produced_by_run::text FROM messages m WHERE m.role = 'tool'
        GROUP BY m.tenant, m.thread_id, m.produced_by_run, m.step_index, m.tool_call_id
        HAVING count(*) > 1 + (SELECT count(*) FROM tickets t WHERE t.tenant = m.tenant
            AND t.run_id = m.produced_by_run AND t.step_index = m.step_index
            AND t.call_id = m.tool_call_id)
            + (SELECT count(*) FROM tickets t WHERE t.tenant = m.tenant
            AND t.run_id = m.produced_by_run AND t.kind = 'limit')""",
    "a run miscounts its unread inputs": """
        SELECT r.id::text FROM runs r WHERE r.unread_inputs <> (SELECT count(*) FROM inputs i
            WHERE i.tenant = r.tenant AND i.run_id = r.id AND i.status = 'pending')""",
    "a run miscounts its tasks": """
        SELECT r.id::text FROM runs r WHERE r.open_tasks <> (SELECT count(*) FROM tasks t
            WHERE t.tenant = r.tenant AND t.run_id = r.id AND t.status = 'running')""",
    "a run waits for tasks without a task, or has unread inputs and no delivery": """
        SELECT r.id::text FROM runs r WHERE r.waiting_reason = 'background_tasks' AND (
            CASE WHEN r.unread_inputs = 0 THEN r.open_tasks = 0 ELSE NOT EXISTS (
                SELECT FROM pgq.pgqueuer q WHERE q.dedupe_key = r.tenant || ':' || r.id || ':' || r.attempt) END)""",
    "a task's end was reported twice": """
        SELECT t.id FROM tasks t WHERE t.reported_at IS NOT NULL AND (SELECT count(*) FROM inputs i
            WHERE i.tenant = t.tenant AND i.run_id = t.run_id
                AND i.message ->> 'content' LIKE '%task_id=_"' || t.id || '%') > 1""",
    "a rolled back run still has visible messages": """
        SELECT r.id::text FROM runs r JOIN messages m ON m.tenant = r.tenant
            AND m.thread_id = r.thread_id AND (m.produced_by_run = r.id
                OR m.seq BETWEEN r.input_from AND r.input_to)
        WHERE r.status = 'done' AND r.rolled_back_by IS NOT NULL AND NOT EXISTS (
            SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
                AND m.seq BETWEEN b.from_seq AND b.to_seq AND b.by_run_id = r.rolled_back_by)""",
    "a rollback covers messages of another run": """
        SELECT b.run_id::text FROM rollbacks b JOIN messages m ON m.tenant = b.tenant
            AND m.thread_id = b.thread_id AND m.seq BETWEEN b.from_seq AND b.to_seq
        JOIN runs r ON r.tenant = m.tenant AND r.id = m.produced_by_run
        WHERE r.rolled_back_by IS NULL AND r.thread_id = b.thread_id AND NOT EXISTS (
            SELECT FROM runs later WHERE later.tenant = r.tenant AND later.retry_of = r.id)""",
    "a decided ticket has no decision, or two": """
        SELECT t.id::text FROM tickets t LEFT JOIN decisions d ON d.tenant = t.tenant
            AND d.ticket = t.id AND d.effect = 'decided'
        WHERE t.status = 'decided' GROUP BY t.tenant, t.id HAVING count(d.decision_id) <> 1""",
}


async def broken_invariants(url: str) -> dict[str, list[str]]:
    """Every broken rule, with the ids of the rows that break it."""
    connection = await asyncpg.connect(url)
    try:
        found = {rule: await connection.fetch(query) for rule, query in _BROKEN.items()}
    finally:
        await connection.close()
    return {rule: [row[0] for row in rows] for rule, rows in found.items() if rows}


async def deadlocks(url: str) -> int:
    """The number of deadlocks that the server has resolved and counted."""
    connection = await asyncpg.connect(url)
    try:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(await connection.fetchval(query))
    finally:
        await connection.close()
