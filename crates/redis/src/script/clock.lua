local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- The furthest ahead that a clock which is right can have left a bucket: see `algebra/ahead.rs`.
local latest = now + 3600000000
