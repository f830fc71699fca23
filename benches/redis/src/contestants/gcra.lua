-- The generic cell rate algorithm over one number, the theoretical time of arrival.
-- KEYS[1] the bucket; ARGV[1] microseconds that a request takes, ARGV[2] microseconds of burst.
-- Answers microseconds: of waiting if more than 0, else of what is left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = tonumber(redis.call('GET', KEYS[1]) or now)
if arrival < now then
    arrival = now
end
arrival = arrival + ARGV[1]
local debt = arrival - now
local wait = debt - ARGV[2]
if wait <= 0 then
    redis.call('SET', KEYS[1], arrival, 'PX', math.ceil(debt / 1000))
end
return wait
