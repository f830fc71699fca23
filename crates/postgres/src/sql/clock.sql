-- The server's clock: microseconds since the epoch. Tests take the time from the numbers.
--
-- The seconds are a double, which is exact to less than half a microsecond until the year 2242, and
-- rounded to one. `extract` takes ten times as long.
CREATE OR REPLACE FUNCTION tollgate.clock(numbers bigint[]) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (date_part('epoch', clock_timestamp()) * 1000000::double precision)::bigint;

-- The furthest ahead that a clock which is right can have left a bucket: see `algebra/ahead.rs`.
CREATE OR REPLACE FUNCTION tollgate.latest(now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN now + 3600000000;
