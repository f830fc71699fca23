-- The formula of `algebra/{charge, two_choices, refund, block, rescale}.rs`.
--
-- `quota` has the numbers of a limit: gain, token, capacity, step, initial. A state is two numbers:
-- value and time. A stored bucket is six: value, ts, gain, token, capacity, step. 2^53 is the most
-- that can be counted.
--
-- The step is below zero if the limit has windows of a calendar. Then the start of the present window,
-- the mean length of windows and the end of the present one follow, and windows are counted: the time
-- of a state is the number of its window, the present one is 0, and the step is 1.
--
-- The phase is -2^53 if windows begin with the first use of a full bucket.

-- How often a limit gains, as it counts.
CREATE OR REPLACE FUNCTION tollgate.step_of(quota bigint[]) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN quota[4] < 0 THEN 1 ELSE quota[4] END;

-- The present as a limit counts it.
CREATE OR REPLACE FUNCTION tollgate.present(quota bigint[], now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN quota[4] < 0 THEN 0 ELSE now END;

-- The stored time of a state as its limit counts it.
CREATE OR REPLACE FUNCTION tollgate.counted(quota bigint[], ts bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN quota[4] > 0 THEN ts
    ELSE ((ts - quota[6]) * 2 + quota[7]
        - tollgate.modulo((ts - quota[6]) * 2 + quota[7], quota[7] * 2)) / (quota[7] * 2)
END;

-- The time that is stored of a state.
CREATE OR REPLACE FUNCTION tollgate.time_of(quota bigint[], ts bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN quota[4] > 0 THEN ts
    WHEN ts <= 0 THEN quota[6]
    -- No later than what can be counted, which is in the year 2255.
    ELSE quota[6] + quota[7] / 4 + quota[7]
        * least(ts, (9007199254740992 - quota[6] - quota[7] / 4) / quota[7])
END;

-- A state that was refreshed to an instant.
CREATE OR REPLACE FUNCTION tollgate.refresh(
    quota bigint[], phase bigint, state bigint[], at bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    step CONSTANT bigint := tollgate.step_of(quota);
    value CONSTANT bigint := tollgate.refreshed(quota[1], quota[3], step, state[1], state[2], at);
BEGIN
    IF phase = -9007199254740992 AND value = quota[3] THEN
        -- The next use begins a window.
        RETURN ARRAY[value, greatest(state[2], at)];
    END IF;
    RETURN ARRAY[value, tollgate.refreshed_ts(step, state[2], at)];
END
$$;

-- The start of the window around an instant, as a limit counts it.
CREATE OR REPLACE FUNCTION tollgate.last_gain(quota bigint[], phase bigint, at bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN phase = -9007199254740992 THEN at
    ELSE tollgate.window_at(tollgate.step_of(quota), phase, at)
END;

CREATE OR REPLACE FUNCTION tollgate.absent(quota bigint[], phase bigint, at bigint)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY[quota[5], tollgate.last_gain(quota, phase, at)];

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

-- Whether a bucket is as a charge left it. `state` has its time as the limit counts it, and
-- `left_state` as it is stored.
CREATE OR REPLACE FUNCTION tollgate.untouched(
    quota bigint[], phase bigint, state bigint[], left_state bigint[], now bigint
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    present CONSTANT bigint := tollgate.present(quota, now);
    before CONSTANT bigint[] := ARRAY[left_state[1], tollgate.counted(quota, left_state[2])];
    was CONSTANT bigint[] := tollgate.refresh(quota, phase, before, present);
    held CONSTANT bigint[] := tollgate.refresh(quota, phase, state, present);
BEGIN
    RETURN held[1] = was[1] AND held[2] = was[2];
END
$$;

-- The time is how many windows the block touches, if they are those of a calendar.
CREATE OR REPLACE FUNCTION tollgate.block(
    quota bigint[], phase bigint, state bigint[], "time" bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    present CONSTANT bigint := tollgate.present(quota, now);
    block_end CONSTANT bigint := least(9007199254740992, present + least("time", 9007199254740992));
    blocked bigint[] := tollgate.refresh(quota, phase, state, present);
BEGIN
    IF block_end <= present THEN
        RETURN blocked;
    END IF;
    -- As any windows: those from the first use follow on each other from the block on.
    blocked := tollgate.refresh(quota, 0, blocked, block_end - 1);
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

-- Units in other numbers, rounded down. So many units as can be counted empty or fill any bucket.
CREATE OR REPLACE FUNCTION tollgate.convert_units(
    units bigint, to_token bigint, from_token bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN units >= 9007199254740992 OR units <= -9007199254740992 THEN units
    WHEN units >= 0 THEN least(
        div(units::numeric * to_token::numeric, from_token::numeric), 9007199254740992::numeric
    )::bigint
    ELSE -tollgate.scale_up(-units, to_token, from_token)
END;

-- Whether a stored bucket takes the numbers of a quota also if it refuses a charge by them: if they
-- refill at least as fast as its own.
CREATE OR REPLACE FUNCTION tollgate.yields(stored bigint[], quota bigint[]) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN quota[5] <> quota[3]
    OR quota[1]::numeric * stored[4]::numeric * abs(stored[6])::numeric
    >= stored[3]::numeric * quota[2]::numeric * abs(quota[4])::numeric;

-- A stored bucket at present, by the numbers in which it is stored: value, time and present. Those do
-- not say where the windows of another calendar begin, so these count with their step, which none
-- exceeds.
CREATE OR REPLACE FUNCTION tollgate.refresh_stored(stored bigint[], quota bigint[], now bigint)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN abs(stored[6]) = -quota[4] THEN ARRAY[
        tollgate.refreshed(
            stored[3], stored[5], 1, stored[1], tollgate.counted(quota, stored[2]), 0
        ),
        greatest(tollgate.counted(quota, stored[2]), 0),
        0
    ]
    ELSE ARRAY[
        tollgate.refreshed(stored[3], stored[5], abs(stored[6]), stored[1], stored[2], now),
        tollgate.refreshed_ts(abs(stored[6]), stored[2], now),
        now
    ]
END;

-- Converts the state of a stored bucket from its quota to another one.
CREATE OR REPLACE FUNCTION tollgate.rescale(
    stored bigint[], quota bigint[], phase bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found CONSTANT bigint[] := tollgate.refresh_stored(stored, quota, now);
    value CONSTANT bigint := found[1];
    ts bigint := found[2];
    at bigint := found[3];
    is_blocked CONSTANT boolean := value < 0 AND ts > at;
    step CONSTANT bigint := tollgate.step_of(quota);
    used CONSTANT bigint := least(9007199254740992, stored[5] - value);
    held_ts bigint;
    left_value bigint;
BEGIN
    IF quota[4] < 0 AND abs(stored[6]) <> -quota[4] THEN
        -- A block holds to the end of the window in which it ends.
        ts := CASE
            WHEN is_blocked AND ts >= quota[8]
            THEN (ts - quota[8] + quota[7] / 8) / quota[7] + 1
            ELSE 0
        END;
        at := 0;
    END IF;
    held_ts := tollgate.last_gain(quota, phase, greatest(at, ts));
    IF used = 0 THEN
        RETURN ARRAY[quota[5], held_ts];
    END IF;
    left_value := quota[3] - tollgate.scale_up(used, quota[2], stored[4]);
    IF NOT is_blocked THEN
        RETURN ARRAY[left_value, held_ts];
    END IF;
    -- Blocked. A window that starts before `ts` would gain too soon, or count as one without a
    -- block.
    IF held_ts < ts AND held_ts + step < 9007199254740992 THEN
        held_ts := held_ts + step;
    END IF;
    RETURN ARRAY[greatest(tollgate.min_value(quota), least(-1, left_value)), held_ts];
END
$$;
