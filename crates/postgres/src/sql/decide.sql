-- What the server does for each batch: one statement.
--
-- `keys` are the names of the buckets, each once, in ascending order of their bytes. `numbers` are:
--
-- * how many limits there are, and the gain, token, capacity, step and initial of each. If one has
--   windows of a calendar, its step is below zero, and the next one has in place of these numbers the
--   start of the present window, the mean length of windows, and the end of the present window; then
--   the last one has the instants between which that holds, 0, 0 and -2;
-- * how many operations there are, and of each its code and the numbers that `operate` lists. Keys
--   and limits are named by their places from 1 on.
--
-- Charges of one bucket each, without debt, have a form of their own if no bucket is named twice and
-- all limits begin full: 1, the code 5, and for each key in order the limit, the phase and the units,
-- which are more than 0.
--
-- The result is `now`, in microseconds since the epoch, and `stored`: six numbers for each bucket
-- as it was before (value, ts, gain, token, capacity, step), all of them 0 if it was absent. The
-- client computes the verdicts from this by the same formula. If what it says of calendars does not
-- hold now, `stored` is empty, and nothing is done.
--
-- For example, one charge of 1 token on one bucket for 5 a minute is
-- `decide('{alice}', '{1, 1, 12000000, 60000000, 1, 60000000, 1, 5, 1, 0, 12000000}')`.

-- Counts how often a row is there, and is not seen. Others do not insert and remove it that often.
CREATE OR REPLACE FUNCTION tollgate.missed(missed integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF missed >= 100 THEN
        RAISE EXCEPTION 'a policy of the table hides the row of a bucket' USING ERRCODE = 'TOLLH';
    END IF;
    RETURN coalesce(missed, 0) + 1;
END
$$;

-- Locks the row of a bucket, and returns its numbers. If there is none, a row that counts as absent
-- takes its place, so that no other call can insert one.
CREATE OR REPLACE FUNCTION tollgate.lock(name bytea) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    held bigint[];
    -- How often the row was there, and not seen.
    missed integer;
BEGIN
    LOOP
        SELECT ARRAY[b.value, b.ts, b.gain, b.token, b.capacity, b.step] INTO held
        FROM tollgate.buckets b WHERE b.key = name FOR UPDATE;
        IF FOUND THEN
            RETURN held;
        END IF;
        INSERT INTO tollgate.buckets VALUES (name, 0, 0, 1, 1, 0, 1) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN '{0,0,0,0,0,0}';
        END IF;
        -- Another call has inserted the row since it was looked for.
        missed := tollgate.missed(missed);
    END LOOP;
END
$$;

-- Stores the numbers of a bucket whose row is locked. Removes the row if the bucket is absent.
CREATE OR REPLACE FUNCTION tollgate.store(name bytea, cell bigint[], now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF cell[6] = 0 THEN
        DELETE FROM tollgate.buckets b WHERE b.key = name;
    ELSE
        UPDATE tollgate.buckets b
        SET value = cell[1], ts = cell[2], gain = cell[3], token = cell[4], capacity = cell[5],
            step = cell[6]
        WHERE b.key = name;
    END IF;
END
$$;

-- The general form: any number of operations on any number of buckets. `locks_first` says whether
-- to lock all buckets before they are read.
CREATE OR REPLACE FUNCTION tollgate.decide_many(
    keys bytea[], numbers bigint[], locks_first boolean, OUT now bigint, OUT stored bigint[]
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    buckets CONSTANT integer := cardinality(keys);
    -- Where the operations begin.
    first CONSTANT integer := numbers[1] * 5 + 3;
    -- Whether all operations are plain charges: of one bucket each, without debt.
    is_plain boolean := true;
    -- What the operations leave in the buckets, as `stored`.
    after bigint[];
    changed boolean[];
    some_changed boolean := false;
    -- The versions of the rows that were read.
    versions xid[];
    -- The rows that this call has locked, and those that it has changed.
    locked boolean[];
    written boolean[];
    -- Whether every bucket is still as it was read.
    stands boolean := true;
    held bigint[];
    -- The time of the first decision.
    before bigint;
    -- The last place of a bucket in `stored`.
    a integer;
    gain bigint;
    token bigint;
    capacity bigint;
    stored_step bigint;
    left_value bigint;
    left_ts bigint;
    name bytea;
    version xid;
    b record;
BEGIN
    changed := array_fill(false, ARRAY[buckets]);
    written := changed;
    -- In stricter transactions, a plain read would see the buckets as they were when the
    -- transaction of the caller began. A lock fails if they have changed since.
    IF locks_first OR current_setting('transaction_isolation') <> 'read committed' THEN
        FOR k IN 1..buckets LOOP
            stored[k * 6 - 5:k * 6] := tollgate.lock(keys[k]);
        END LOOP;
        now := tollgate.clock(numbers);
        after := coalesce(tollgate.operate(now, numbers, stored), stored);
        FOR k IN 1..buckets LOOP
            a := k * 6;
            IF stored[a] = 0 OR after[a - 5:a] <> stored[a - 5:a] THEN
                PERFORM tollgate.store(keys[k], after[a - 5:a], now);
            END IF;
        END LOOP;
        IF tollgate.is_outside(now, numbers) THEN
            stored := '{}';
        END IF;
        RETURN;
    END IF;

    stored := array_fill(0::bigint, ARRAY[buckets * 6]);
    versions := array_fill(NULL::xid, ARRAY[buckets]);
    -- One statement, so that all buckets are seen at the same instant. The clock is read after
    -- that: no bucket was charged later.
    FOR b IN
        SELECT u.place::integer AS place, r.xmin AS version,
            ARRAY[r.value, r.ts, r.gain, r.token, r.capacity, r.step] AS cell
        FROM unnest(keys) WITH ORDINALITY AS u (key, place)
        JOIN tollgate.buckets r ON r.key = u.key
    LOOP
        stored[b.place * 6 - 5:b.place * 6] := b.cell;
        versions[b.place] := b.version;
    END LOOP;
    now := tollgate.clock(numbers);
    after := tollgate.operate(now, numbers, stored);
    IF after IS NULL THEN
        stored := '{}';
        RETURN;
    END IF;
    FOR k IN 1..buckets LOOP
        a := k * 6;
        IF after[a - 5] <> stored[a - 5] OR after[a - 4] <> stored[a - 4] OR after[a] <> stored[a]
            OR after[a - 5:a] <> stored[a - 5:a]
        THEN
            changed[k] := true;
            some_changed := true;
        END IF;
    END LOOP;
    IF NOT some_changed THEN
        RETURN;
    END IF;
    FOR operation IN 1..numbers[first - 1] LOOP
        IF numbers[first + operation * 5 - 5] <> 1 THEN
            is_plain := false;
            EXIT;
        END IF;
    END LOOP;

    -- In the order of the keys, so that no two calls wait for each other. A row that is to be
    -- changed is locked and changed at once, if it is still as it was read. The others are locked
    -- as well, since the operations may depend on them; only those of plain charges do not.
    locked := changed;
    FOR k IN 1..buckets LOOP
        a := k * 6;
        stored_step := after[a];
        IF changed[k] AND stored_step <> 0 THEN
            name := keys[k];
            version := versions[k];
            left_value := after[a - 5];
            left_ts := after[a - 4];
            gain := after[a - 3];
            token := after[a - 2];
            capacity := after[a - 1];
            IF version IS NULL THEN
                INSERT INTO tollgate.buckets
                VALUES (name, left_value, left_ts, gain, token, capacity, stored_step)
                ON CONFLICT DO NOTHING;
            ELSIF stored_step = stored[a] AND capacity = stored[a - 1] AND token = stored[a - 2]
                AND gain = stored[a - 3]
            THEN
                -- The numbers of the quota stay. Each column that is set costs.
                UPDATE tollgate.buckets r
                SET value = left_value, ts = left_ts
                WHERE r.key = name AND r.xmin = version;
            ELSE
                UPDATE tollgate.buckets r
                SET value = left_value, ts = left_ts, gain = gain, token = token,
                    capacity = capacity, step = stored_step
                WHERE r.key = name AND r.xmin = version;
            END IF;
            IF FOUND THEN
                written[k] := true;
                CONTINUE;
            END IF;
        ELSIF is_plain THEN
            CONTINUE;
        END IF;
        held := tollgate.lock(keys[k]);
        locked[k] := true;
        written[k] := held[6] = 0;
        -- A reset and a bucket that does not change are only locked here.
        stands := stands AND held = stored[a - 5:a] AND (after[a] = 0 OR NOT changed[k]);
        stored[a - 5:a] := held;
    END LOOP;
    IF stands AND is_plain THEN
        RETURN;
    END IF;

    IF NOT stands THEN
        -- Decides again, at the time at which the last lock was there.
        before := now;
        now := tollgate.clock(numbers);
        IF tollgate.is_outside(now, numbers) THEN
            -- A window has ended meanwhile, and some rows are changed already.
            now := before;
        END IF;
        after := tollgate.operate(now, numbers, stored);
        FOR k IN 1..buckets LOOP
            a := k * 6;
            IF NOT locked[k] AND after[a - 5:a] <> stored[a - 5:a] THEN
                -- A plain charge would be admitted by now, but its bucket can no longer be locked
                -- in order. At the time of the first decision it is refused.
                now := before;
                after := tollgate.operate(now, numbers, stored);
                EXIT;
            END IF;
        END LOOP;
    END IF;
    FOR k IN 1..buckets LOOP
        a := k * 6;
        IF locked[k] AND (written[k] OR after[a - 5:a] <> stored[a - 5:a])
            AND NOT (stands AND changed[k] AND after[a] <> 0)
        THEN
            PERFORM tollgate.store(keys[k], after[a - 5:a], now);
        END IF;
    END LOOP;
END
$$;

-- Decides a batch of one charge, in the form for charges of a bucket each. Returns the numbers of the
-- bucket as it was, and the time of the decision.
CREATE OR REPLACE FUNCTION tollgate.take(
    name bytea, gain bigint, token bigint, capacity bigint, step bigint, phase bigint,
    units bigint, numbers bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    -- Whether to lock the row before it is read.
    locks boolean := current_setting('transaction_isolation') <> 'read committed';
    now bigint;
    held bigint[];
    left_value bigint;
    left_ts bigint;
    r record;
    -- How often the row was there, and not seen.
    missed integer;
BEGIN
    LOOP
        IF locks THEN
            SELECT b.value, b.ts, b.gain, b.token, b.capacity, b.step, b.xmin AS version INTO r
            FROM tollgate.buckets b WHERE b.key = name FOR UPDATE;
        ELSE
            SELECT b.value, b.ts, b.gain, b.token, b.capacity, b.step, b.xmin AS version INTO r
            FROM tollgate.buckets b WHERE b.key = name;
        END IF;
        -- After the bucket was read, so that it was not charged later.
        now := tollgate.clock(numbers);
        IF r.step IS NULL THEN
            IF units > capacity THEN
                RETURN ARRAY[0, 0, 0, 0, 0, 0, now];
            END IF;
            left_value := capacity - units;
            left_ts := tollgate.window_at(step, phase, now);
            INSERT INTO tollgate.buckets
            VALUES (name, left_value, left_ts, gain, token, capacity, step)
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN ARRAY[0, 0, 0, 0, 0, 0, now];
            END IF;
            missed := tollgate.missed(missed);
        ELSIF r.step = step AND r.capacity = capacity AND r.gain = gain AND r.token = token
            AND (step = 1 OR tollgate.modulo(r.ts, step) = phase)
            AND (r.ts <= tollgate.latest(now) OR r.value < 0)
        THEN
            left_value := tollgate.refreshed(gain, capacity, step, r.value, r.ts, now) - units;
            IF left_value < 0 THEN
                RETURN ARRAY[r.value, r.ts, gain, token, capacity, step, now];
            END IF;
            left_ts := tollgate.refreshed_ts(step, r.ts, now);
            UPDATE tollgate.buckets b SET value = left_value, ts = left_ts
            WHERE b.key = name AND b.xmin = r.version;
            IF FOUND THEN
                RETURN ARRAY[r.value, r.ts, gain, token, capacity, step, now];
            END IF;
        ELSE
            -- It is stored for another quota.
            held := tollgate.lock(name);
            now := tollgate.clock(numbers);
            PERFORM tollgate.store(name, after, now)
            FROM tollgate.operate(
                now, ARRAY[1, gain, token, capacity, step, capacity, 1, 1, 1, 1, phase, units], held
            ) after;
            RETURN held || now;
        END IF;
        -- Another call has changed the bucket since it was read.
        locks := true;
    END LOOP;
END
$$;

-- The charges of a batch in the form for charges of a bucket each, in the order of the keys.
CREATE OR REPLACE FUNCTION tollgate.own_charges(keys bytea[], numbers bigint[])
RETURNS TABLE (
    place integer, key bytea, gain bigint, token bigint, capacity bigint, step bigint,
    phase bigint, units bigint
)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT o.place, o.key, numbers[o.s - 3], numbers[o.s - 2], numbers[o.s - 1], numbers[o.s],
        o.phase, o.units
    FROM (
        SELECT u.place::integer AS place, u.key,
            numbers[numbers[1] * 5 + u.place * 3 + 1] * 5 AS s,
            numbers[numbers[1] * 5 + u.place * 3 + 2] AS phase,
            numbers[numbers[1] * 5 + u.place * 3 + 3] AS units
        FROM unnest(keys) WITH ORDINALITY AS u (key, place)
        OFFSET 0
    ) AS o
    OFFSET 0;
END;

-- Decides a batch in the form for charges of a bucket each.
CREATE OR REPLACE FUNCTION tollgate.take_all(
    keys bytea[], numbers bigint[], OUT now bigint, OUT stored bigint[]
)
LANGUAGE plpgsql VOLATILE
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_variable
DECLARE
    others integer := cardinality(keys);
    -- The same charges in the form for all operations.
    charges bigint[];
    a integer;
    r record;
BEGIN
    stored := array_fill(0::bigint, ARRAY[cardinality(keys) * 6]);
    now := tollgate.clock(numbers);
    BEGIN
        -- Rows are locked in the order of the keys, whichever side of the join leads: one has this
        -- order, and the index of the other has it as well.
        FOR r IN
            UPDATE tollgate.buckets b
            SET value = tollgate.refreshed(n.gain, n.capacity, n.step, b.value, b.ts, now) - n.units,
                ts = tollgate.refreshed_ts(n.step, b.ts, now)
            FROM tollgate.own_charges(keys, numbers) n
            WHERE b.key = n.key AND b.gain = n.gain AND b.token = n.token
                AND b.capacity = n.capacity AND b.step = n.step
                AND (n.step = 1 OR tollgate.modulo(b.ts, n.step) = n.phase)
                AND tollgate.refreshed(n.gain, n.capacity, n.step, b.value, b.ts, now) >= n.units
            -- The bucket as it was, refreshed to now.
            RETURNING n.place * 6 AS a, b.value + n.units AS value, b.ts, b.gain, b.token,
                b.capacity, b.step
        LOOP
            stored[r.a - 5] := r.value;
            stored[r.a - 4] := r.ts;
            stored[r.a - 3] := r.gain;
            stored[r.a - 2] := r.token;
            stored[r.a - 1] := r.capacity;
            stored[r.a] := r.step;
            others := others - 1;
            IF r.ts > now THEN
                -- Another call has charged the bucket since this one has read the clock. Charges of
                -- one bucket must not be told as later and then earlier.
                RAISE SQLSTATE 'TOLLG';
            END IF;
        END LOOP;
        IF others = 0 THEN
            RETURN;
        END IF;
        -- The others lack the units, or have to be changed, or cannot be decided without another
        -- lock: one that is out of order could wait for a call that waits for this one. Then the
        -- charges are undone. So they are in stricter transactions, where a plain read would see
        -- the buckets as they were when the transaction began.
        FOR r IN
            SELECT n.place * 6 AS a, b.value, b.ts, b.gain, b.token, b.capacity, b.step,
                CASE
                    WHEN b.key IS NULL THEN n.units > n.capacity
                    ELSE b.gain = n.gain AND b.token = n.token AND b.capacity = n.capacity
                        AND b.step = n.step
                        AND (n.step = 1 OR tollgate.modulo(b.ts, n.step) = n.phase)
                        AND (b.ts <= tollgate.latest(now) OR b.value < 0)
                        AND tollgate.refreshed(n.gain, n.capacity, n.step, b.value, b.ts, now)
                            < n.units
                END AS is_refused
            FROM tollgate.own_charges(keys, numbers) n
            LEFT JOIN tollgate.buckets b ON b.key = n.key
            WHERE stored[n.place * 6] = 0
        LOOP
            IF r.is_refused IS NOT TRUE
                OR current_setting('transaction_isolation') <> 'read committed'
            THEN
                RAISE SQLSTATE 'TOLLG';
            END IF;
            CONTINUE WHEN r.step IS NULL;
            stored[r.a - 5] := r.value;
            stored[r.a - 4] := r.ts;
            stored[r.a - 3] := r.gain;
            stored[r.a - 2] := r.token;
            stored[r.a - 1] := r.capacity;
            stored[r.a] := r.step;
        END LOOP;
        RETURN;
    EXCEPTION WHEN SQLSTATE 'TOLLG' THEN
        -- Some buckets are absent, stored for another quota, or changed by another call.
        NULL;
    END;
    BEGIN
        -- With absent buckets: their rows are made in the order in which the others are locked.
        stored := array_fill(0::bigint, ARRAY[cardinality(keys) * 6]);
        others := cardinality(keys);
        now := tollgate.clock(numbers);
        FOR r IN
            INSERT INTO tollgate.buckets AS b
            SELECT n.key, n.capacity - n.units, tollgate.window_at(n.step, n.phase, now), n.gain,
                n.token, n.capacity, n.step
            FROM tollgate.own_charges(keys, numbers) n
            WHERE n.units <= n.capacity
            ORDER BY n.place
            ON CONFLICT (key) DO UPDATE
            SET value = tollgate.refreshed(b.gain, b.capacity, b.step, b.value, b.ts, now)
                    - (excluded.capacity - excluded.value),
                ts = tollgate.refreshed_ts(b.step, b.ts, now)
            WHERE b.gain = excluded.gain AND b.token = excluded.token
                AND b.capacity = excluded.capacity AND b.step = excluded.step
                AND (excluded.step = 1 OR tollgate.modulo(b.ts, excluded.step)
                    = tollgate.modulo(excluded.ts, excluded.step))
                AND tollgate.refreshed(
                    excluded.gain, excluded.capacity, excluded.step, b.value, b.ts, now
                ) >= excluded.capacity - excluded.value
            -- A row that was there was locked before it was updated, and its new version says so.
            RETURNING array_position(keys, b.key) AS place, b.xmax <> 0 AS was_there, b.value, b.ts,
                b.gain, b.token, b.capacity, b.step
        LOOP
            others := others - 1;
            IF r.ts > now THEN
                RAISE SQLSTATE 'TOLLG';
            END IF;
            CONTINUE WHEN NOT r.was_there;
            a := r.place * 6;
            stored[a - 5] := r.value + numbers[numbers[1] * 5 + r.place * 3 + 3];
            stored[a - 4] := r.ts;
            stored[a - 3] := r.gain;
            stored[a - 2] := r.token;
            stored[a - 1] := r.capacity;
            stored[a] := r.step;
        END LOOP;
        IF others = 0 THEN
            RETURN;
        END IF;
        RAISE SQLSTATE 'TOLLG';
    EXCEPTION WHEN SQLSTATE 'TOLLG' THEN
        -- Some are refused, stored for another quota, or changed by another call.
        NULL;
    END;
    charges := numbers[1:numbers[1] * 5 + 1] || cardinality(keys)::bigint;
    FOR k IN 1..cardinality(keys) LOOP
        a := numbers[1] * 5 + k * 3 + 1;
        charges := charges || ARRAY[1, k, numbers[a], numbers[a + 1], numbers[a + 2]];
    END LOOP;
    -- The time of tests.
    charges := charges || numbers[a + 3:];
    SELECT m.now, m.stored INTO now, stored FROM tollgate.decide_many(keys, charges, false) m;
END
$$;

-- Decides a batch. Leaves all but charges of a bucket each to `decide_many`.
--
-- The server prepares each expression again in each statement, or in each transaction, so they are
-- few on the way of one charge. Several are decided by one statement.
--
-- It runs with the rights of its owner, so the search path of the caller must not choose its
-- operators. Setting the path takes 0.6 µs of the server for each call, as measured; to qualify
-- each operator in place of that would hide the formula.
CREATE OR REPLACE FUNCTION tollgate.decide(
    keys bytea[], numbers bigint[], OUT now bigint, OUT stored bigint[]
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF numbers[numbers[1] * 5 + 3] IS DISTINCT FROM 5 THEN
        SELECT m.now, m.stored INTO now, stored
        FROM tollgate.decide_many(keys, numbers, false) m;
        RETURN;
    END IF;
    IF cardinality(keys) = 1 THEN
        stored := tollgate.take(
            keys[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[10], numbers[11],
            numbers
        );
        now := stored[7];
        stored := stored[1:6];
    ELSE
        SELECT m.now, m.stored INTO now, stored FROM tollgate.take_all(keys, numbers) m;
    END IF;
END
$$;

-- As `decide`, and waits no longer than so many milliseconds for each lock, whatever the connection says.
CREATE OR REPLACE FUNCTION tollgate.decide_within(
    keys bytea[], numbers bigint[], patience integer, OUT now bigint, OUT stored bigint[]
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- Without this, what the function sets would hold to the end of the transaction.
SET lock_timeout = 0
AS $$
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    SELECT m.now, m.stored INTO now, stored FROM tollgate.decide(keys, numbers) m;
END
$$;

-- Which transaction has made the row of a bucket, and which one holds it.
CREATE OR REPLACE FUNCTION tollgate.holder(name bytea) RETURNS text
LANGUAGE sql VOLATILE
RETURN (SELECT b.xmin::text || ' '::text || b.xmax::text FROM tollgate.buckets b WHERE b.key = name);

-- The places of the keys whose rows fail a call that names them. One transaction has held the row for
-- `patience`, in milliseconds. Or, and then the place is below zero, the row holds numbers that are not
-- those of a bucket, or a policy hides it.
--
-- A row that many calls want is none of them: its holder changes. If the whole table is locked, that is an
-- error after `table_patience`. Holds no row while it waits, and changes nothing.
CREATE OR REPLACE FUNCTION tollgate.sick(keys bytea[], table_patience integer, patience integer)
RETURNS integer[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = 0
AS $$
DECLARE
    places integer[] := '{}';
    -- The places that are still to be judged, and who held their rows at first.
    rest integer[];
    left_over integer[];
    holders text[];
    ends timestamptz;
    is_last boolean;
    is_sound boolean;
    k integer;
BEGIN
    PERFORM set_config('lock_timeout', table_patience::text, true);
    LOCK TABLE tollgate.buckets IN ROW EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', '1', true);
    FOR k IN 1..cardinality(keys) LOOP
        -- A row is foreign if its numbers exceed the bounds of the columns, which somebody may have
        -- removed. A plain read sees that even while another transaction locks the row.
        PERFORM FROM tollgate.buckets b
        WHERE b.key = keys[k] AND b.step <> 0 AND (
            b.value BETWEEN -9007199254740992 AND 9007199254740992
            AND b.ts BETWEEN -9007199254740992 AND 9007199254740992
            AND b.gain BETWEEN 1 AND 9007199254740992
            AND b.token BETWEEN 1 AND 9007199254740992
            AND b.capacity BETWEEN 0 AND 9007199254740992
            AND b.step BETWEEN -9007199254740992 AND 9007199254740992
        ) IS NOT TRUE;
        IF FOUND THEN
            places := places || -k;
        ELSE
            rest := rest || k;
            holders[k] := tollgate.holder(keys[k]);
        END IF;
    END LOOP;
    ends := clock_timestamp() + patience * interval '1 millisecond';
    WHILE cardinality(rest) > 0 LOOP
        left_over := '{}';
        FOREACH k IN ARRAY rest LOOP
            is_last := clock_timestamp() >= ends;
            is_sound := false;
            BEGIN
                PERFORM 1 FROM tollgate.buckets b WHERE b.key = keys[k] FOR UPDATE NOWAIT;
                PERFORM tollgate.lock(keys[k]);
                UPDATE tollgate.buckets b SET value = b.value WHERE b.key = keys[k];
                is_sound := FOUND;
                -- Undoes it, so that the row is free for the next one who looks.
                RAISE SQLSTATE 'TOLLG';
            EXCEPTION
                WHEN lock_not_available THEN
                    CONTINUE WHEN holders[k] IS DISTINCT FROM tollgate.holder(keys[k]);
                    IF is_last THEN
                        places := places || k;
                    ELSE
                        left_over := left_over || k;
                    END IF;
                    CONTINUE;
                WHEN serialization_failure THEN
                    -- Another transaction has just changed it, and holds it no more.
                    CONTINUE;
                WHEN SQLSTATE 'TOLLG' OR SQLSTATE 'TOLLH' OR insufficient_privilege
                    OR check_violation OR numeric_value_out_of_range OR division_by_zero
                THEN
                    NULL;
            END;
            IF NOT is_sound THEN
                places := places || -k;
            END IF;
        END LOOP;
        rest := left_over;
        IF cardinality(rest) > 0 THEN
            PERFORM pg_sleep(0.001);
        END IF;
    END LOOP;
    RETURN places;
END
$$;
