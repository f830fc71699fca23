-- Rights: no role may call the functions but their owner, who grants them:
--
--     GRANT USAGE ON SCHEMA tollgate TO app;
--     GRANT SELECT ON tollgate.versions TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.decide_3, tollgate.decide_within_3, tollgate.sick_3,
--         tollgate.sweep_3 TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.debtors_3 TO app; -- shows keys: only where they are listed
--
-- The role needs no right on the table of buckets.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tollgate FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tollgate FROM PUBLIC;

-- A role that may call a function of another version may call it in this one.
DO $$
DECLARE
    may record;
BEGIN
    FOR may IN
        SELECT DISTINCT n.function, pg_get_userbyid(a.grantee) AS role
        FROM (VALUES
            ('decide'::text, 'tollgate.decide(bytea[], bigint[])'::regprocedure),
            ('decide'::text, 'tollgate.decide_within(bytea[], bigint[], text)'::regprocedure),
            ('decide'::text, 'tollgate.sick(bytea[], integer)'::regprocedure),
            ('sweep'::text, 'tollgate.sweep(bigint, bigint)'::regprocedure),
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

INSERT INTO tollgate.versions (version) VALUES (3) ON CONFLICT DO NOTHING;
