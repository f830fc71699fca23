-- Rights: no role may call the functions but their owner, who grants them:
--
--     GRANT USAGE ON SCHEMA tollgate TO app;
--     GRANT SELECT ON tollgate.versions TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.decide_4, tollgate.decide_within_4, tollgate.sick_4,
--         tollgate.sweep_4 TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.debtors_4 TO app; -- shows keys: only where they are listed
--
-- The role needs no right on the table of buckets.
REVOKE ALL ON ALL TABLES IN SCHEMA tollgate FROM PUBLIC;

-- A role that may call a function of another version may call it in this one. What is revoked later
-- stays so if this runs again.
DO $$
DECLARE
    function regprocedure;
    may record;
BEGIN
    FOR function IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = to_regnamespace('tollgate')::oid AND p.proname ~ '_4$'::text
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', function);
    END LOOP;
    IF EXISTS (SELECT FROM tollgate.versions v WHERE v.version = 4) THEN
        RETURN;
    END IF;
    FOR may IN
        SELECT DISTINCT n.function, pg_get_userbyid(a.grantee) AS role
        FROM (VALUES
            ('decide'::text, 'tollgate.decide(bytea[], bigint[])'::regprocedure),
            ('decide'::text, 'tollgate.decide_within(bytea[], bigint[], integer)'::regprocedure),
            ('decide'::text, 'tollgate.sick(bytea[], integer, integer)'::regprocedure),
            ('sweep'::text, 'tollgate.sweep(bigint, bigint, bigint)'::regprocedure),
            ('debtors'::text, 'tollgate.debtors(bytea, bytea, bigint, bigint[])'::regprocedure)
        ) AS n (name, function)
        JOIN pg_proc p ON p.pronamespace = to_regnamespace('tollgate')::oid
            AND p.proname ~ ('^'::text || n.name || '(_[0-9]+)?$'::text)
        CROSS JOIN aclexplode(p.proacl) a
        WHERE a.grantee <> 0::oid AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', may.function, may.role);
    END LOOP;
END
$$;

INSERT INTO tollgate.versions (version) VALUES (4) ON CONFLICT DO NOTHING;
