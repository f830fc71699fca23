-- Returns some of the buckets with keys from `first` to before `behind`, in the order of the keys:
-- those that may be in debt by the numbers of a limit, which are its gain, token, capacity and step.
-- The client judges them.
--
-- It looks at `most` rows, which it finds by the index of the keys, and locks none. `last` is the key of
-- the last of them; it is null if no row comes behind. `stored` has six numbers for each key.
CREATE OR REPLACE FUNCTION tollgate.debtors(
    first bytea, behind bytea, most bigint, numbers bigint[],
    OUT now bigint, OUT last bytea, OUT keys bytea[], OUT stored bigint[]
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $$
BEGIN
    WITH part AS MATERIALIZED (
        SELECT b.* FROM tollgate.buckets b
        WHERE b.key >= first AND b.key < behind
        ORDER BY b.key LIMIT most
    ), due AS MATERIALIZED (
        -- Time only adds to a value. By other numbers, it may be another one.
        SELECT p.* FROM part p
        WHERE p.value < 0 OR p.gain <> numbers[1] OR p.token <> numbers[2]
            OR p.capacity <> numbers[3] OR p.step <> numbers[4]
    )
    SELECT
        (SELECT p.key FROM part p ORDER BY p.key OFFSET most - 1),
        (SELECT array_agg(d.key ORDER BY d.key) FROM due d),
        (
            SELECT array_agg(u.number ORDER BY d.key, u.place)
            FROM due d, unnest(ARRAY[d.value, d.ts, d.gain, d.token, d.capacity, d.step]::bigint[])
                WITH ORDINALITY AS u (number, place)
        )
    INTO last, keys, stored;
    keys := coalesce(keys, ARRAY[]::bytea[]);
    stored := coalesce(stored, ARRAY[]::bigint[]);
    -- After the rows: a bucket that was charged later than this time would seem to be blocked.
    now := tollgate.clock(numbers);
END
$$;
