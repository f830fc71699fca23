-- The formula of `algebra/{charge, two_choices, refund, block, rescale}.rs`.
--
-- `quota` has the numbers of a limit: gain, token, capacity, step, initial. A state is two numbers:
-- value and time. A stored bucket is six: value, ts, gain, token, capacity, step. 2^53 is the most
-- that can be counted.

-- A state that was refreshed to an instant.
CREATE OR REPLACE FUNCTION tollgate.refresh(quota bigint[], state bigint[], at bigint)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY[
    tollgate.refreshed(quota[1], quota[3], quota[4], state[1], state[2], at),
    tollgate.refreshed_ts(quota[4], state[2], at)
];

CREATE OR REPLACE FUNCTION tollgate.absent(quota bigint[], phase bigint, at bigint)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY[quota[5], tollgate.window_at(quota[4], phase, at)];

-- The lowest value that can be counted.
CREATE OR REPLACE FUNCTION tollgate.min_value(quota bigint[]) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN quota[3] - 9007199254740992;

-- The highest value to which a refund may lift a bucket. It must not open a blocked one.
CREATE OR REPLACE FUNCTION tollgate.refund_cap(quota bigint[], state bigint[], now bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN state[2] > now AND state[1] < 0 THEN greatest(quota[3] - 9007199254740992, -1)
    ELSE quota[3]
END;

-- The time until a bucket that was refreshed to now is out of debt.
CREATE OR REPLACE FUNCTION tollgate.wait_of(
    gain bigint, step bigint, value bigint, ts bigint, now bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN value >= 0 THEN 0
    ELSE greatest(tollgate.after_steps(step, ts, tollgate.steps_to_gain(gain, -value)) - now, 0)
END;

-- The verdict on a charge on two shards that were refreshed to now (1: admitted, 2: reserved,
-- 3: refused), and the values that are left in them, in their order.
CREATE OR REPLACE FUNCTION tollgate.charge_pair(
    gain bigint, step bigint, value bigint, ts bigint, value2 bigint, ts2 bigint,
    units bigint, lowest bigint, max_wait bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    fuller bigint := value;
    fuller_ts bigint := ts;
    poorer bigint := value2;
    poorer_ts bigint := ts2;
    total bigint;
    split_poorer bigint;
    split_fuller bigint;
    is_reserved boolean;
BEGIN
    IF value2 > value THEN
        fuller := value2;
        fuller_ts := ts2;
        poorer := value;
        poorer_ts := ts;
    END IF;
    IF fuller >= units THEN
        IF value2 > value THEN
            RETURN ARRAY[1, value, value2 - units];
        END IF;
        RETURN ARRAY[1, value - units, value2];
    END IF;

    -- Both pay, and are left with equal values.
    total := fuller + poorer - units;
    split_poorer := (total - tollgate.modulo(total, 2)) / 2;
    split_fuller := total - split_poorer;
    IF split_poorer > poorer OR split_fuller > fuller OR split_poorer < 0 THEN
        -- The fuller one alone can reserve them.
        is_reserved := fuller - units >= lowest;
        IF is_reserved THEN
            is_reserved := tollgate.wait_of(gain, step, fuller - units, fuller_ts, now) <= max_wait;
        END IF;
        IF is_reserved THEN
            IF value2 > value THEN
                RETURN ARRAY[2, value, value2 - units];
            END IF;
            RETURN ARRAY[2, value - units, value2];
        END IF;
        -- Both together can reserve them.
        IF split_poorer > poorer OR split_fuller > fuller OR split_poorer < lowest THEN
            RETURN ARRAY[3, value, value2];
        END IF;
        IF tollgate.wait_of(gain, step, split_fuller, fuller_ts, now) > max_wait
            OR tollgate.wait_of(gain, step, split_poorer, poorer_ts, now) > max_wait
        THEN
            RETURN ARRAY[3, value, value2];
        END IF;
        IF value2 > value THEN
            RETURN ARRAY[2, split_poorer, split_fuller];
        END IF;
        RETURN ARRAY[2, split_fuller, split_poorer];
    END IF;
    IF value2 > value THEN
        RETURN ARRAY[1, split_poorer, split_fuller];
    END IF;
    RETURN ARRAY[1, split_fuller, split_poorer];
END
$$;

CREATE OR REPLACE FUNCTION tollgate.give(quota bigint[], value bigint, units bigint, cap bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN greatest(quota[3] - 9007199254740992, least(cap, value + units));

-- Whether a bucket is as a charge left it.
CREATE OR REPLACE FUNCTION tollgate.untouched(
    quota bigint[], state bigint[], left_state bigint[], now bigint
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN tollgate.refreshed(quota[1], quota[3], quota[4], state[1], state[2], now)
    = tollgate.refreshed(quota[1], quota[3], quota[4], left_state[1], left_state[2], now)
    AND tollgate.refreshed_ts(quota[4], state[2], now)
    = tollgate.refreshed_ts(quota[4], left_state[2], now);

CREATE OR REPLACE FUNCTION tollgate.block(
    quota bigint[], state bigint[], "time" bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    block_end CONSTANT bigint := least(9007199254740992, now + least("time", 9007199254740992));
    blocked bigint[];
BEGIN
    IF block_end <= now THEN
        RETURN tollgate.refresh(quota, state, now);
    END IF;
    blocked := tollgate.refresh(quota, state, block_end - 1);
    blocked[1] := greatest(tollgate.min_value(quota), least(-1, blocked[1]));
    RETURN blocked;
END
$$;

-- units * to / from, rounded up. The product may be too large for a bigint.
CREATE OR REPLACE FUNCTION tollgate.scale_up(units bigint, to_token bigint, from_token bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN least(
    div(units::numeric * to_token::numeric + (from_token - 1)::numeric, from_token::numeric),
    9007199254740992::numeric
)::bigint;

-- Converts the state of a stored bucket from its quota to another one.
CREATE OR REPLACE FUNCTION tollgate.rescale(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    old_step CONSTANT bigint := abs(stored[6]);
    value CONSTANT bigint :=
        tollgate.refreshed(stored[3], stored[5], old_step, stored[1], stored[2], now);
    ts CONSTANT bigint := tollgate.refreshed_ts(old_step, stored[2], now);
    held_ts bigint := tollgate.window_at(quota[4], phase, greatest(now, ts));
    used CONSTANT bigint := least(9007199254740992, stored[5] - value);
    left_value bigint;
BEGIN
    IF used = 0 THEN
        RETURN ARRAY[quota[5], held_ts];
    END IF;
    left_value := quota[3] - tollgate.scale_up(used, quota[2], stored[4]);
    IF value >= 0 OR ts <= now THEN
        RETURN ARRAY[left_value, held_ts];
    END IF;
    -- Blocked. A window that starts before `ts` would gain too soon, or count as one without a
    -- block.
    IF held_ts < ts AND held_ts + quota[4] < 9007199254740992 THEN
        held_ts := held_ts + quota[4];
    END IF;
    RETURN ARRAY[greatest(tollgate.min_value(quota), least(-1, left_value)), held_ts];
END
$$;
