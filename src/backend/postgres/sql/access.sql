-- Rights: no role may call the functions but their owner, who grants them:
--
--     GRANT USAGE ON SCHEMA tollgate TO app;
--     GRANT SELECT ON tollgate.versions TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.decide, tollgate.decide_within, tollgate.sick,
--         tollgate.sweep TO app;
--     GRANT EXECUTE ON FUNCTION tollgate.debtors TO app; -- shows keys: only where they are listed
--
-- The role needs no right on the table of buckets.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tollgate FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tollgate FROM PUBLIC;

INSERT INTO tollgate.versions (version) VALUES (3) ON CONFLICT DO NOTHING;
