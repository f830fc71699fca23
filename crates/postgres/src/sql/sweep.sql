-- Removes buckets that equal absent ones from some pages of the table, from `first_page` on. If the
-- table has more than `most_keys` rows, by the statistics of the server, it removes as large a share of
-- those in these pages: the buckets that have used the smallest shares of their capacity. Returns how
-- many it has removed, and how many pages the table has.
--
-- A bucket with a time that no right clock has left gets one that is less than a step ahead: it is
-- not known here when its windows begin, so it gains late, and never early. From then on it fills.
--
-- A bucket is kept for a second longer than needed, because the clock may step back. Rows that a
-- decision has locked are skipped: it is changing them.
CREATE OR REPLACE FUNCTION tollgate.sweep(
    first_page bigint, pages bigint, most_keys bigint, OUT removed bigint, OUT table_pages bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $$
DECLARE
    first CONSTANT tid := format('(%s,0)', least(first_page, 4294967294))::tid;
    behind CONSTANT tid := format('(%s,0)', least(first_page + pages, 4294967294))::tid;
    now CONSTANT bigint := tollgate.clock(ARRAY[]::bigint[]);
    -- The rows of the table, and how many of those in these pages are too many.
    live CONSTANT bigint := coalesce(pg_stat_get_live_tuples('tollgate.buckets'::regclass), 0);
    excess bigint;
    evicted bigint;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT b.ctid, b.ts > now AS is_ahead FROM tollgate.buckets b
        WHERE b.ctid >= first AND b.ctid < behind
            AND (
                tollgate.drop_at(b.gain, b.capacity, b.step, b.value, b.ts) <= now - 1000000
                OR tollgate.is_ahead(b.value, b.ts - abs(b.step), b.capacity, now)
            )
        FOR UPDATE SKIP LOCKED
    ), caught_up AS (
        UPDATE tollgate.buckets b SET ts = now + (b.ts - now) % abs(b.step) FROM found f
        WHERE b.ctid = f.ctid AND f.is_ahead
    )
    DELETE FROM tollgate.buckets b USING found f
    WHERE b.ctid = f.ctid AND NOT f.is_ahead;
    GET DIAGNOSTICS removed = ROW_COUNT;
    table_pages := pg_relation_size('tollgate.buckets') / current_setting('block_size')::bigint;

    IF live <= most_keys THEN
        RETURN;
    END IF;
    SELECT ceil(count(*) * (live - most_keys)::double precision / live)::bigint INTO excess
    FROM tollgate.buckets b WHERE b.ctid >= first AND b.ctid < behind;
    WITH least_used AS MATERIALIZED (
        SELECT b.ctid FROM tollgate.buckets b
        WHERE b.ctid >= first AND b.ctid < behind
        ORDER BY
            -- Blocked buckets go last, and those in debt before them.
            b.ts > now AND b.value < 0,
            CASE WHEN b.capacity > 0 THEN (
                b.capacity
                - tollgate.refreshed(b.gain, b.capacity, abs(b.step), b.value, b.ts, now)
            )::double precision / b.capacity END
        LIMIT excess
        FOR UPDATE SKIP LOCKED
    )
    DELETE FROM tollgate.buckets b USING least_used l
    WHERE b.ctid = l.ctid;
    GET DIAGNOSTICS evicted = ROW_COUNT;
    removed := removed + evicted;
END
$$;
