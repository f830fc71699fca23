-- The formula of `algebra/bucket.rs`. Names and order are those of `src/algebra`, here and in
-- `formula.sql`.
--
-- All numbers are whole. Those of quotas and buckets are within 2^53, so sums of a few of them fit
-- into a bigint; a product is bounded before it is made.
--
-- Each function is one expression, which the server puts in place of its call. Its operators are
-- looked up when it is made, so all operands have the very types of an operator of the system: then
-- that is taken, whatever a schema on the search path offers.

-- The value of a bucket at an instant.
CREATE OR REPLACE FUNCTION tollgate.refreshed(
    gain bigint, capacity bigint, step bigint, value bigint, ts bigint, at bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN at <= ts THEN least(value, capacity)
    -- Compares steps before it multiplies: more than it takes to fill the bucket could overflow.
    WHEN (at - ts) / step >= (capacity - value + gain - 1) / gain THEN capacity
    ELSE value + (at - ts) / step * gain
END;

-- The time of a bucket that was refreshed to an instant.
CREATE OR REPLACE FUNCTION tollgate.refreshed_ts(step bigint, ts bigint, at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN at <= ts THEN ts ELSE at - (at - ts) % step END;

-- The remainder of a division that rounds down.
CREATE OR REPLACE FUNCTION tollgate.modulo(number bigint, divisor bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (number % divisor + divisor) % divisor;

-- The start of the window around an instant; for a token bucket, that instant.
CREATE OR REPLACE FUNCTION tollgate.window_at(step bigint, phase bigint, at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN at - ((at - phase) % step + step) % step;

-- The number of steps in which a bucket gains so many units.
CREATE OR REPLACE FUNCTION tollgate.steps_to_gain(gain bigint, units bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (units + gain - 1) / gain;

-- The instant after so many steps, or 2^62 if that is earlier.
CREATE OR REPLACE FUNCTION tollgate.after_steps(step bigint, ts bigint, steps bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN steps > 4602678819172646912 / step THEN 4611686018427387904
    ELSE ts + steps * step
END;

-- The instant at which a bucket is full, or 2^62 if that is earlier.
CREATE OR REPLACE FUNCTION tollgate.full_at(
    gain bigint, capacity bigint, step bigint, value bigint, ts bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN (capacity - value + gain - 1) / gain > 4602678819172646912 / step THEN 4611686018427387904
    ELSE ts + (capacity - value + gain - 1) / gain * step
END;

-- The instant from which a bucket may be removed: it is full, and so is an absent one. One that
-- began below its capacity, as its step below zero tells, never equals an absent one: it is kept
-- for 30 days after it is full and after its last use, which was less than a step behind its time.
CREATE OR REPLACE FUNCTION tollgate.drop_at(
    gain bigint, capacity bigint, step bigint, value bigint, ts bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN tollgate.full_at(gain, capacity, abs(step), value, ts)
    + CASE WHEN step > 0 THEN 0 ELSE 2592000000000 - step END;
