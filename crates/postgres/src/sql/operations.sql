-- The operations, by code: charges, adjustments and resets. A pure function: it computes what the
-- operations leave in the buckets, one operation after the other. `decide` reads and stores them.

-- Whether a state means the same under the old and the new quota, so that it needs no conversion.
CREATE OR REPLACE FUNCTION tollgate.is_counted_in(stored bigint[], quota bigint[], phase bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN stored[3] = quota[1] AND stored[4] = quota[2] AND stored[5] = quota[3]
    AND stored[6] = CASE WHEN quota[5] = quota[3] THEN abs(quota[4]) ELSE -abs(quota[4]) END
    AND (quota[4] < 0 OR phase = -9007199254740992 OR (stored[2] % quota[4] + quota[4]) % quota[4] = phase);

-- Whether a bucket has a time that no right clock has left, and is no block and no debt.
CREATE OR REPLACE FUNCTION tollgate.is_ahead(value bigint, ts bigint, capacity bigint, now bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN ts > tollgate.latest(now) AND value >= 0 AND value > capacity - 9007199254740992;

-- A stored bucket, with such a time read as now.
CREATE OR REPLACE FUNCTION tollgate.caught_up(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF stored[6] <> 0 AND tollgate.is_ahead(stored[1], stored[2], stored[5], now) THEN
        stored[2] := CASE
            WHEN abs(stored[6]) = abs(quota[4])
            THEN tollgate.time_of(
                quota, tollgate.last_gain(quota, phase, tollgate.present(quota, now))
            )
            ELSE now
        END;
    END IF;
    RETURN stored;
END
$$;

-- Whether a bucket is full by the quota that it was stored for. One that was stored for another
-- quota may have been dropped by now, so if it is full it counts as absent in all respects.
CREATE OR REPLACE FUNCTION tollgate.is_full(stored bigint[], quota bigint[], now bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (tollgate.refresh_stored(stored, quota, now))[1] = stored[5];

-- Whether there is a bucket that does not count as absent. The step of an absent one is 0.
CREATE OR REPLACE FUNCTION tollgate.is_stored(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN stored[6] <> 0
    AND (tollgate.is_counted_in(stored, quota, phase) OR NOT tollgate.is_full(stored, quota, now));

-- The state of a bucket, converted to the quota of a limit, with the time as that counts it.
CREATE OR REPLACE FUNCTION tollgate.read(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN stored[6] = 0 THEN tollgate.absent(quota, phase, tollgate.present(quota, now))
    WHEN tollgate.is_counted_in(stored, quota, phase)
    THEN ARRAY[stored[1], tollgate.counted(quota, stored[2])]
    WHEN tollgate.is_full(stored, quota, now)
    THEN tollgate.absent(quota, phase, tollgate.present(quota, now))
    ELSE tollgate.rescale(stored, quota, phase, now)
END;

-- A bucket as it is stored.
CREATE OR REPLACE FUNCTION tollgate.record(quota bigint[], value bigint, ts bigint)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY[
    value, tollgate.time_of(quota, ts), quota[1], quota[2], quota[3],
    CASE WHEN quota[5] = quota[3] THEN abs(quota[4]) ELSE -abs(quota[4]) END
];

-- What is stored of a bucket from which nothing was taken: the bucket itself, unless this is its
-- first use and it starts below its capacity. Then it begins to fill now.
CREATE OR REPLACE FUNCTION tollgate.used(
    stored bigint[], quota bigint[], phase bigint, value bigint, ts bigint, now bigint
) RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN quota[5] <> quota[3] AND NOT tollgate.is_stored(stored, quota, phase, now)
    THEN tollgate.record(quota, value, ts)
    ELSE stored
END;

-- What is stored of a bucket that refused a charge: it changes if it takes the numbers of the quota
-- or this is its first use. The client is told a wait by the new numbers, so the bucket has to gain
-- by them from now on.
CREATE OR REPLACE FUNCTION tollgate.refused(
    stored bigint[], quota bigint[], phase bigint, value bigint, ts bigint, now bigint
) RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN stored[6] = 0 OR tollgate.is_full(stored, quota, now)
    THEN tollgate.used(stored, quota, phase, value, ts, now)
    WHEN NOT tollgate.is_counted_in(stored, quota, phase) AND tollgate.yields(stored, quota)
    THEN tollgate.record(quota, value, ts)
    ELSE stored
END;

-- The state of a bucket, converted to the quota of a limit and refreshed to now.
CREATE OR REPLACE FUNCTION tollgate.held(stored bigint[], quota bigint[], phase bigint, now bigint)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    state CONSTANT bigint[] := tollgate.read(stored, quota, phase, now);
BEGIN
    RETURN tollgate.refresh(quota, phase, state, tollgate.present(quota, now));
END
$$;

-- The state that a charge of a list finds, converted to the quota of its limit, where the charges
-- before it have left this.
CREATE OR REPLACE FUNCTION tollgate.left_for(
    left_cell bigint[], quota bigint[], phase bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF tollgate.is_counted_in(left_cell, quota, phase) THEN
        RETURN tollgate.held(left_cell, quota, phase, now);
    END IF;
    RETURN tollgate.rescale(left_cell, quota, phase, now);
END
$$;

-- Whether a charge cannot reserve: more is used than its limit holds, by numbers that refill
-- faster. `value` is that of the bucket by the quota of the limit.
CREATE OR REPLACE FUNCTION tollgate.is_at_once(
    stored bigint[], quota bigint[], phase bigint, value bigint
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN value < 0 AND stored[6] <> 0 AND NOT tollgate.is_counted_in(stored, quota, phase)
    AND NOT tollgate.yields(stored, quota);

-- Whether some of a bucket is used by other numbers than those of a quota. Adjustments do not
-- change them.
CREATE OR REPLACE FUNCTION tollgate.is_used_by_others(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN stored[6] <> 0 AND NOT tollgate.is_counted_in(stored, quota, phase)
    AND NOT tollgate.is_full(stored, quota, now);

-- The quota in which a bucket is stored, as one sees it that knows the calendar of another. How far
-- below its capacity it began is not known.
CREATE OR REPLACE FUNCTION tollgate.own_quota(stored bigint[], quota bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY[
    stored[3], stored[4], stored[5],
    CASE WHEN abs(stored[6]) = -quota[4] THEN quota[4] ELSE abs(stored[6]) END,
    CASE WHEN stored[6] < 0 THEN stored[5] - 1 ELSE stored[5] END,
    quota[6], quota[7], quota[8]
];

-- The state of an adjustment, in the numbers in which a bucket is stored. Nothing is known of the
-- start of its windows: those of states begin with that of the bucket.
CREATE OR REPLACE FUNCTION tollgate.state_in_own(
    stored bigint[], quota bigint[], value bigint, ts bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    own CONSTANT bigint[] := tollgate.own_quota(stored, quota);
    state CONSTANT bigint[] := tollgate.rescale(
        ARRAY[value, ts] || (tollgate.record(quota, 0, 0))[3:6], own, stored[2], now
    );
BEGIN
    RETURN ARRAY[state[1], tollgate.time_of(own, state[2])];
END
$$;

-- The numbers of an adjustment, which `adjusted` lists, in those in which a bucket is stored.
CREATE OR REPLACE FUNCTION tollgate.in_own(
    stored bigint[], quota bigint[], what bigint[], now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    own_what bigint[] := what;
BEGIN
    IF what[1] = 1 THEN
        RETURN what;
    END IF;
    own_what[2] := tollgate.convert_units(what[2], stored[4], quota[2]);
    own_what[4:5] := tollgate.state_in_own(stored, quota, what[4], what[5], now);
    own_what[7:8] := tollgate.state_in_own(stored, quota, what[7], what[8], now);
    RETURN own_what;
END
$$;

-- What an adjustment leaves in a bucket. `what` has its numbers: 0 to give back or 1 to block;
-- units or time; 1 and a state if the bucket must be untouched since a charge left that state (a block
-- has in place of its value how many windows of the calendar it touches); 1 and a state if what it has gained since a charge left that state counts.
CREATE OR REPLACE FUNCTION tollgate.adjusted(
    stored bigint[], quota bigint[], phase bigint, what bigint[], now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    units bigint := what[2];
    cap bigint := quota[3];
    state bigint[];
BEGIN
    IF tollgate.is_used_by_others(stored, quota, phase, now) THEN
        what := tollgate.in_own(stored, quota, what, now);
        quota := tollgate.own_quota(stored, quota);
        phase := 0;
        units := what[2];
        cap := quota[3];
        state := ARRAY[stored[1], tollgate.counted(quota, stored[2])];
    ELSIF NOT (what[1] = 1 AND units > 0 OR what[1] = 0 AND units < 0)
        AND NOT tollgate.is_stored(stored, quota, phase, now)
    THEN
        -- An absent bucket has no room for a refund, and storing it would change no answer.
        RETURN stored;
    ELSE
        state := tollgate.read(stored, quota, phase, now);
    END IF;
    IF what[1] = 1 THEN
        state := tollgate.block(
            quota, phase, state, CASE WHEN quota[4] < 0 THEN what[4] ELSE units END, now
        );
        RETURN tollgate.record(quota, state[1], state[2]);
    END IF;
    state := tollgate.refresh(quota, phase, state, tollgate.present(quota, now));
    IF what[3] = 0 THEN
        cap := tollgate.refund_cap(quota, state, tollgate.present(quota, now));
        IF what[6] = 1 THEN
            units := least(units, greatest(0, quota[3] - tollgate.refreshed(
                quota[1], quota[3], tollgate.step_of(quota),
                what[7], tollgate.counted(quota, what[8]), tollgate.present(quota, now)
            )));
        END IF;
    END IF;
    RETURN tollgate.record(quota, tollgate.give(quota, state[1], units, cap), state[2]);
END
$$;

-- Whether what the last limit says of calendars does not hold now; its initial tells that it says
-- something.
CREATE OR REPLACE FUNCTION tollgate.is_outside(now bigint, numbers bigint[]) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN numbers[numbers[1] * 5 + 1] = -2
    AND (now < numbers[numbers[1] * 5 - 3] OR now >= numbers[numbers[1] * 5 - 2]);

-- Returns what the operations leave in the buckets; nothing, if what `numbers` says of calendars does
-- not hold now. `stored` has six numbers for each bucket, all of them 0 if it is absent. `numbers` is
-- what `decide` describes.
CREATE OR REPLACE FUNCTION tollgate.operate(now bigint, numbers bigint[], stored bigint[])
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    cells bigint[] := stored;
    at integer := numbers[1] * 5 + 3;
    count integer;
    behind integer;
    -- The numbers of one bucket in an operation.
    k integer;
    k2 integer;
    s integer := 0;
    quota bigint[];
    gain bigint;
    token bigint;
    capacity bigint;
    step bigint;
    initial bigint;
    stored_step bigint;
    value bigint;
    ts bigint;
    value2 bigint;
    ts2 bigint;
    phase bigint;
    units bigint;
    lowest bigint;
    max_wait bigint;
    takes boolean;
    cell bigint[];
    state bigint[];
    outcome bigint[];
    what bigint[];
    -- Whether a charge cannot reserve.
    at_once boolean;
    -- What the charges of an operation leave in each bucket so far, and for which limit.
    left_value bigint[];
    left_ts bigint[];
    left_s bigint[];
    is_refused boolean;
    -- The charges that take: bucket, limit, phase, what is left, and whether it pays; six numbers
    -- for each.
    taking bigint[];
    taken integer;
    -- Whether each bucket is stored for the quota of its limit, and named once.
    is_usual boolean;
    -- The present as the limit counts it.
    present bigint;
    -- Later times are read as now, unless they are those of blocks and debts.
    latest CONSTANT bigint := tollgate.latest(now);
BEGIN
    IF tollgate.is_outside(now, numbers) THEN
        RETURN NULL;
    END IF;
    FOR operation IN 1..numbers[at - 1] LOOP
        -- One charge of one bucket, without debt: bucket, limit, phase, units. Nearly all
        -- operations are such charges, and nearly all buckets are stored for the quota of the
        -- limit.
        IF numbers[at] = 1 THEN
            k := numbers[at + 1] * 6;
            IF s <> numbers[at + 2] * 5 THEN
                s := numbers[at + 2] * 5;
                quota := numbers[s - 3:s + 4];
                gain := numbers[s - 3];
                token := numbers[s - 2];
                capacity := numbers[s - 1];
                step := numbers[s];
                initial := numbers[s + 1];
                stored_step := CASE WHEN initial = capacity THEN step ELSE -step END;
            END IF;
            phase := numbers[at + 3];
            units := numbers[at + 4];
            at := at + 5;
            IF step > 0 AND cells[k] = stored_step AND cells[k - 1] = capacity
                AND cells[k - 3] = gain AND cells[k - 2] = token
                AND (step = 1 OR tollgate.modulo(cells[k - 4], step) = phase)
                AND (cells[k - 4] <= latest OR cells[k - 5] < 0)
            THEN
                value := tollgate.refreshed(gain, capacity, step, cells[k - 5], cells[k - 4], now);
                IF value >= units AND (units > 0 OR initial <> capacity) THEN
                    cells[k - 4] := tollgate.refreshed_ts(step, cells[k - 4], now);
                    cells[k - 5] := value - units;
                END IF;
                CONTINUE;
            END IF;
            cell := tollgate.caught_up(cells[k - 5:k], quota, phase, now);
            cells[k - 5:k] := cell;
            state := tollgate.held(cell, quota, phase, now);
            IF state[1] < units THEN
                cells[k - 5:k] := tollgate.refused(cell, quota, phase, state[1], state[2], now);
            ELSIF units > 0 OR initial <> capacity THEN
                cells[k - 5:k] := tollgate.record(quota, state[1] - units, state[2]);
            END IF;
            CONTINUE;
        END IF;

        CASE numbers[at]

        -- Charges, all or nothing. The numbers are: how many; of each the two buckets (the second
        -- is 0 if there is one), limit, phase, units, the lowest value that may be left, the
        -- longest wait, and 1 if it takes.
        WHEN 2 THEN
            behind := at + 2 + numbers[at + 1] * 8;
            at := at + 2;
            left_s := NULL;
            taking := '{}';
            taken := 0;
            is_refused := false;
            is_usual := true;

            WHILE at < behind LOOP
                k := numbers[at];
                k2 := numbers[at + 1];
                s := numbers[at + 2];
                phase := numbers[at + 3];
                units := numbers[at + 4];
                lowest := numbers[at + 5];
                max_wait := numbers[at + 6];
                takes := numbers[at + 7] = 1;
                at_once := false;
                at := at + 8;
                gain := numbers[s * 5 - 3];
                token := numbers[s * 5 - 2];
                capacity := numbers[s * 5 - 1];
                step := numbers[s * 5];
                initial := numbers[s * 5 + 1];
                stored_step := CASE WHEN initial = capacity THEN step ELSE -step END;
                present := now;
                IF step < 0 THEN
                    -- No stored step, so all below reads the numbers of the limit as a whole.
                    stored_step := 0;
                    present := 0;
                    step := 1;
                END IF;
                -- Nearly all buckets are stored for the quota of the limit, and named once.
                IF left_s[k] IS NULL AND cells[k * 6] = stored_step AND cells[k * 6 - 1] = capacity
                    AND cells[k * 6 - 3] = gain AND cells[k * 6 - 2] = token
                    AND (step = 1 OR tollgate.modulo(cells[k * 6 - 4], step) = phase)
                    AND (cells[k * 6 - 4] <= latest OR cells[k * 6 - 5] < 0)
                THEN
                    ts := cells[k * 6 - 4];
                    value := tollgate.refreshed(gain, capacity, step, cells[k * 6 - 5], ts, now);
                    ts := tollgate.refreshed_ts(step, ts, now);
                ELSE
                    is_usual := false;
                    quota := numbers[s * 5 - 3:s * 5 + 4];
                    IF left_s[k] IS NULL THEN
                        cell := tollgate.caught_up(cells[k * 6 - 5:k * 6], quota, phase, now);
                        cells[k * 6 - 5:k * 6] := cell;
                        state := tollgate.held(cell, quota, phase, now);
                    ELSE
                        cell := tollgate.record(
                            numbers[left_s[k] * 5 - 3:left_s[k] * 5 + 4], left_value[k], left_ts[k]
                        );
                        state := tollgate.left_for(cell, quota, phase, now);
                    END IF;
                    value := state[1];
                    ts := state[2];
                    at_once := tollgate.is_at_once(cell, quota, phase, value);
                END IF;
                IF k2 = 0 THEN
                    IF NOT is_refused AND value < units THEN
                        -- Reserved, if the terms allow it.
                        is_refused := at_once OR value - units < lowest;
                        IF NOT is_refused THEN
                            is_refused := tollgate.wait_of(gain, step, value - units, ts, present)
                                > max_wait;
                        END IF;
                    END IF;
                    IF takes THEN
                        IF NOT is_refused THEN
                            value := value - units;
                        END IF;
                        taking := taking || ARRAY[
                            k, s, phase, value, ts, (units > 0 OR initial <> capacity)::integer
                        ];
                        taken := taken + 6;
                    END IF;
                ELSE
                    IF left_s[k2] IS NULL AND cells[k2 * 6] = stored_step
                        AND cells[k2 * 6 - 1] = capacity
                        AND cells[k2 * 6 - 3] = gain AND cells[k2 * 6 - 2] = token
                        AND (step = 1 OR tollgate.modulo(cells[k2 * 6 - 4], step) = phase)
                        AND (cells[k2 * 6 - 4] <= latest OR cells[k2 * 6 - 5] < 0)
                    THEN
                        ts2 := cells[k2 * 6 - 4];
                        value2 :=
                            tollgate.refreshed(gain, capacity, step, cells[k2 * 6 - 5], ts2, now);
                        ts2 := tollgate.refreshed_ts(step, ts2, now);
                    ELSE
                        is_usual := false;
                        quota := numbers[s * 5 - 3:s * 5 + 4];
                        IF left_s[k2] IS NULL THEN
                            cell := tollgate.caught_up(
                                cells[k2 * 6 - 5:k2 * 6], quota, phase, now
                            );
                            cells[k2 * 6 - 5:k2 * 6] := cell;
                            state := tollgate.held(cell, quota, phase, now);
                        ELSE
                            cell := tollgate.record(
                                numbers[left_s[k2] * 5 - 3:left_s[k2] * 5 + 4],
                                left_value[k2], left_ts[k2]
                            );
                            state := tollgate.left_for(cell, quota, phase, now);
                        END IF;
                        value2 := state[1];
                        ts2 := state[2];
                        at_once := at_once OR tollgate.is_at_once(cell, quota, phase, value2);
                    END IF;
                    IF at_once THEN
                        lowest := 0;
                        max_wait := 0;
                    END IF;
                    outcome := ARRAY[3, value, value2];
                    IF NOT is_refused THEN
                        outcome := tollgate.charge_pair(
                            gain, step, value, ts, value2, ts2, units, lowest, max_wait, present
                        );
                        is_refused := outcome[1] = 3;
                    END IF;
                    IF takes THEN
                        taking := taking || ARRAY[
                            k, s, phase, outcome[2], ts, (outcome[2] < value)::integer,
                            k2, s, phase, outcome[3], ts2, (outcome[3] < value2)::integer
                        ];
                        taken := taken + 12;
                        value := outcome[2];
                        value2 := outcome[3];
                    END IF;
                END IF;
                -- Charges behind this one find what is left here. If it is refused, they no longer
                -- count.
                IF takes AND at < behind THEN
                    left_value[k] := value;
                    left_ts[k] := ts;
                    left_s[k] := s;
                    IF k2 > 0 THEN
                        left_value[k2] := value2;
                        left_ts[k2] := ts2;
                        left_s[k2] := s;
                    END IF;
                END IF;
            END LOOP;

            FOR i IN 6..taken BY 6 LOOP
                k := taking[i - 5];
                IF is_usual THEN
                    -- A bucket that is stored for the quota of its charge stays as it is if that is
                    -- refused.
                    EXIT WHEN is_refused;
                    IF taking[i] = 1 THEN
                        cells[k * 6 - 5] := taking[i - 2];
                        cells[k * 6 - 4] := taking[i - 1];
                    END IF;
                    CONTINUE;
                END IF;
                s := taking[i - 4];
                phase := taking[i - 3];
                quota := numbers[s * 5 - 3:s * 5 + 4];
                cell := cells[k * 6 - 5:k * 6];
                IF is_refused THEN
                    -- Read again: a charge before it may have changed the numbers.
                    state := tollgate.held(cell, quota, phase, now);
                    cell := tollgate.refused(cell, quota, phase, state[1], state[2], now);
                ELSIF taking[i] = 1 THEN
                    cell := tollgate.record(quota, taking[i - 2], taking[i - 1]);
                ELSE
                    cell := tollgate.used(cell, quota, phase, taking[i - 2], taking[i - 1], now);
                END IF;
                cells[k * 6 - 5:k * 6] := cell;
            END LOOP;

        -- Adjustments, all or nothing. The numbers are: how many; of each bucket, limit, phase, and
        -- what `adjusted` lists.
        WHEN 3 THEN
            count := numbers[at + 1];
            behind := at + 2 + count * 11;
            at := at + 2;
            is_refused := false;
            FOR i IN at..behind - 1 BY 11 LOOP
                IF numbers[i + 5] = 1 THEN
                    k := numbers[i] * 6;
                    s := numbers[i + 1] * 5;
                    quota := numbers[s - 3:s + 4];
                    phase := numbers[i + 2];
                    cell := tollgate.caught_up(cells[k - 5:k], quota, phase, now);
                    cells[k - 5:k] := cell;
                    what := numbers[i + 3:i + 10];
                    IF tollgate.is_used_by_others(cell, quota, phase, now) THEN
                        what := tollgate.in_own(cell, quota, what, now);
                        quota := tollgate.own_quota(cell, quota);
                        phase := 0;
                        state := ARRAY[cell[1], tollgate.counted(quota, cell[2])];
                    ELSE
                        state := tollgate.read(cell, quota, phase, now);
                    END IF;
                    is_refused := is_refused
                        OR NOT tollgate.untouched(quota, phase, state, what[4:5], now);
                END IF;
            END LOOP;
            IF NOT is_refused THEN
                FOR i IN at..behind - 1 BY 11 LOOP
                    k := numbers[i] * 6;
                    s := numbers[i + 1] * 5;
                    quota := numbers[s - 3:s + 4];
                    cell := tollgate.caught_up(cells[k - 5:k], quota, numbers[i + 2], now);
                    cells[k - 5:k] := tollgate.adjusted(
                        cell, quota, numbers[i + 2], numbers[i + 3:i + 10], now
                    );
                END LOOP;
            END IF;
            at := behind;

        -- Resets. The numbers are: how many, and the buckets.
        WHEN 4 THEN
            FOR i IN at + 2..at + 1 + numbers[at + 1] LOOP
                k := numbers[i] * 6;
                cells[k - 5:k] := '{0,0,0,0,0,0}'::bigint[];
            END LOOP;
            at := at + 2 + numbers[at + 1];
        END CASE;
        s := 0;
    END LOOP;
    RETURN cells;
END
$$;
