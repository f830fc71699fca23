-- The tables. `PostgresBuilder::migration` returns the files of this folder in the order in which they
-- run. In them, `tollgate` stands for the schema, and the functions lack the version that their names
-- end with: other versions may be there as well, so what is here serves all of them. The search path
-- must not name a schema of another role before `pg_catalog`; it does not, unless a setting of the
-- session or of the role says so.

-- The functions are written in a form that older servers cannot read.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old, as the store needs version 14 or a newer one',
            current_setting('server_version')
            USING ERRCODE = 'feature_not_supported';
    END IF;
END
$$;

-- Refuses objects of another role. The tables below are made only if they are missing, and a
-- trigger on a table that another role has made would run with the rights of the owner of our
-- functions.
DO $$
DECLARE
    me CONSTANT oid := current_user::regrole::oid;
    other oid;
BEGIN
    SELECT o.owner INTO other FROM (
        SELECT relowner AS owner FROM pg_class
        WHERE relnamespace = to_regnamespace('tollgate')::oid
        UNION ALL
        SELECT proowner FROM pg_proc WHERE pronamespace = to_regnamespace('tollgate')::oid
        UNION ALL
        SELECT typowner FROM pg_type WHERE typnamespace = to_regnamespace('tollgate')::oid
        UNION ALL
        -- The schema may belong to an administrator, or to a role of which this one is a member.
        SELECT n.nspowner FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
        WHERE n.oid = to_regnamespace('tollgate')::oid AND NOT r.rolsuper
            AND r.rolname <> 'pg_database_owner'::name
            AND NOT EXISTS (
                SELECT FROM pg_database d
                WHERE d.datname = current_database() AND d.datdba = n.nspowner
            )
            AND NOT EXISTS (
                SELECT FROM pg_auth_members m WHERE m.roleid = n.nspowner AND m.member = me
            )
    ) o WHERE o.owner <> me LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'the schema, or an object in it, belongs to the role %',
            pg_get_userbyid(other)
            USING ERRCODE = 'duplicate_object',
                HINT = 'Run the migration as that role, or drop the schema.';
    END IF;
END
$$;

-- A role that may create in the schema need not be allowed to create schemas.
DO $$
BEGIN
    IF to_regnamespace('tollgate') IS NULL THEN
        CREATE SCHEMA tollgate;
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS tollgate.versions (
    version integer PRIMARY KEY,
    installed_at timestamptz NOT NULL DEFAULT now()
);

-- What a column may hold. All numbers are within 2^53, so no sum of a few of them exceeds a bigint.
-- A domain is checked in a tenth of the time that a CHECK of the table takes.
DO $$
BEGIN
    CREATE DOMAIN tollgate.number AS bigint
        CHECK (VALUE >= -9007199254740992 AND VALUE <= 9007199254740992);
    CREATE DOMAIN tollgate.capacity AS bigint CHECK (VALUE >= 0 AND VALUE <= 9007199254740992);
    CREATE DOMAIN tollgate.positive AS bigint CHECK (VALUE >= 1 AND VALUE <= 9007199254740992);
    CREATE DOMAIN tollgate.step AS bigint
        CHECK (VALUE <> 0 AND VALUE >= -9007199254740992 AND VALUE <= 9007199254740992);
EXCEPTION WHEN duplicate_object THEN
    -- They are there already.
    NULL;
END
$$;

-- The buckets. A bucket is stored as in Redis: the step is negative if it began below its capacity.
--
-- The table is unlogged: a commit does not wait for the disk, and a crash of the server empties it,
-- which fills every bucket. To keep the buckets over a crash, and to copy them to replicas, leave
-- out `UNLOGGED`, at up to eight times the cost of a decision.
--
-- No index is on a column that changes, and pages have room for new versions of their rows, so an
-- update stays in its page and needs no vacuum (HOT). Vacuum does not truncate the table, because
-- that locks out all decisions.
CREATE UNLOGGED TABLE IF NOT EXISTS tollgate.buckets (
    key bytea PRIMARY KEY,
    value tollgate.number NOT NULL,
    ts tollgate.number NOT NULL,
    gain tollgate.positive NOT NULL,
    token tollgate.positive NOT NULL,
    capacity tollgate.capacity NOT NULL,
    step tollgate.step NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
