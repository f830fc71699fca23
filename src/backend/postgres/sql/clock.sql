-- The server's clock: microseconds since the epoch. Tests take the time from the numbers.
CREATE OR REPLACE FUNCTION tollgate.clock(numbers bigint[]) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint;
