-- What the server does for each batch: one statement.
--
-- `keys` are the names of the buckets, each once, in ascending order of their bytes. `numbers` are:
--
-- * how many limits there are, and the gain, token, capacity, step and initial of each;
-- * how many operations there are, and of each its code and the numbers that `operate` lists. Keys
--   and limits are named by their places from 1 on.
--
-- The result is `now`, in microseconds since the epoch, and `stored`: six numbers for each bucket
-- as it was before (value, ts, gain, token, capacity, step), all of them 0 if it was absent. The
-- client computes the verdicts from this by the same formula.
--
-- For example, one charge of 1 token on one bucket for 5 a minute is
-- `decide('{alice}', '{1, 1, 12000000, 60000000, 1, 60000000, 1, 1, 1, 1, 0, 12000000}')`.

-- Locks the row of a bucket, and returns its numbers. If there is none, a row that counts as absent
-- takes its place, so that no other call can insert one.
CREATE OR REPLACE FUNCTION tollgate.lock(name bytea) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    held bigint[];
BEGIN
    LOOP
        SELECT ARRAY[b.value, b.ts, b.gain, b.token, b.capacity, b.step] INTO held
        FROM tollgate.buckets b WHERE b.key = name FOR UPDATE;
        IF FOUND THEN
            RETURN held;
        END IF;
        INSERT INTO tollgate.buckets VALUES (name, 0, 0, 1, 1, 0, 1, 0) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN '{0,0,0,0,0,0}';
        END IF;
        -- Another call has inserted the row since it was looked for.
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
            step = cell[6],
            drop_at = tollgate.drop_at(cell[3], cell[5], cell[6], cell[1], cell[2], now)
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
    left_until bigint;
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
        after := tollgate.operate(now, numbers, stored);
        FOR k IN 1..buckets LOOP
            a := k * 6;
            IF stored[a] = 0 OR after[a - 5:a] <> stored[a - 5:a] THEN
                PERFORM tollgate.store(keys[k], after[a - 5:a], now);
            END IF;
        END LOOP;
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
            left_until := tollgate.drop_at(gain, capacity, stored_step, left_value, left_ts, now);
            IF version IS NULL THEN
                INSERT INTO tollgate.buckets
                VALUES (name, left_value, left_ts, gain, token, capacity, stored_step, left_until)
                ON CONFLICT DO NOTHING;
            ELSIF stored_step = stored[a] AND capacity = stored[a - 1] AND token = stored[a - 2]
                AND gain = stored[a - 3]
            THEN
                -- The numbers of the quota stay. Each column that is set costs.
                UPDATE tollgate.buckets r
                SET value = left_value, ts = left_ts, drop_at = left_until
                WHERE r.key = name AND r.xmin = version;
            ELSE
                UPDATE tollgate.buckets r
                SET value = left_value, ts = left_ts, gain = gain, token = token,
                    capacity = capacity, step = stored_step, drop_at = left_until
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

-- Decides one plain charge by itself, and leaves all other batches to `decide_many`. The server
-- prepares each expression again in each transaction, so they are few here.
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
AS $$
DECLARE
    name bytea;
    left_value bigint;
    left_ts bigint;
    -- Whether another call has changed the bucket while this one decided.
    is_contended boolean := false;
    r record;
BEGIN
    -- One limit, and one operation: a plain charge. Its numbers are gain 2, token 3, capacity 4,
    -- step 5, initial 6, phase 11 and units 12.
    IF numbers[1] = 1 AND numbers[7] = 1 AND numbers[8] = 1
        AND current_setting('transaction_isolation') = 'read committed'
    THEN
        name := keys[1];
        LOOP
            IF is_contended THEN
                SELECT b.value, b.ts, b.gain, b.token, b.capacity, b.step, b.xmin AS version INTO r
                FROM tollgate.buckets b WHERE b.key = name FOR UPDATE;
            ELSE
                SELECT b.value, b.ts, b.gain, b.token, b.capacity, b.step, b.xmin AS version INTO r
                FROM tollgate.buckets b WHERE b.key = name;
            END IF;
            now := tollgate.clock(numbers);
            IF r.step IS NULL THEN
                stored := '{0,0,0,0,0,0}';
                left_value := numbers[6] - numbers[12];
                IF (left_value < 0 OR numbers[12] = 0) AND numbers[6] = numbers[4] THEN
                    RETURN;
                END IF;
                -- A bucket that starts below its capacity is stored even by a refusal.
                left_value := CASE WHEN left_value < 0 THEN numbers[6] ELSE left_value END;
                left_ts := tollgate.window_at(numbers[5], numbers[11], now);
                INSERT INTO tollgate.buckets
                SELECT name, left_value, left_ts, q.gain, q.token, q.capacity, q.step,
                    tollgate.drop_at(q.gain, q.capacity, q.step, left_value, left_ts, now)
                FROM (
                    SELECT numbers[2] AS gain, numbers[3] AS token, numbers[4] AS capacity,
                        CASE WHEN numbers[6] = numbers[4] THEN numbers[5] ELSE -numbers[5] END
                            AS step
                    OFFSET 0
                ) AS q
                ON CONFLICT DO NOTHING;
                IF FOUND THEN
                    RETURN;
                END IF;
            ELSIF r.capacity = numbers[4] AND r.gain = numbers[2] AND r.token = numbers[3]
                AND r.step =
                    (CASE WHEN numbers[6] = r.capacity THEN numbers[5] ELSE -numbers[5] END)
                AND (r.step = 1 OR tollgate.modulo(r.ts, abs(r.step)) = numbers[11])
            THEN
                stored := ARRAY[r.value, r.ts, r.gain, r.token, r.capacity, r.step];
                left_value :=
                    tollgate.refreshed(r.gain, r.capacity, abs(r.step), r.value, r.ts, now)
                    - numbers[12];
                IF left_value < 0 OR numbers[12] = 0 AND r.step > 0 THEN
                    RETURN;
                END IF;
                left_ts := tollgate.refreshed_ts(abs(r.step), r.ts, now);
                UPDATE tollgate.buckets b
                SET value = left_value, ts = left_ts,
                    drop_at = tollgate.drop_at(
                        b.gain, b.capacity, b.step, left_value, left_ts, now
                    )
                WHERE b.key = name AND b.xmin = r.version;
                IF FOUND THEN
                    RETURN;
                END IF;
            ELSE
                -- It is stored for another quota.
                EXIT;
            END IF;
            -- Another call has changed the bucket since it was read.
            is_contended := true;
        END LOOP;
    END IF;
    SELECT m.now, m.stored INTO now, stored
    FROM tollgate.decide_many(keys, numbers, is_contended) m;
END
$$;
