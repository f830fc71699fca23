-- What the client sends and what the server stores. `store` writes what is read here.
--
-- KEYS      The names of the buckets, each once. If the time of initialization counts, the key
--           that holds it comes last.
--
-- ARGV[1]   Doubles, low byte first:
--           * the kind of batch: 1 if the time of initialization counts, 2 if all operations are
--             plain charges, 0 otherwise;
--           * how many limits there are, and the gain, token, capacity, step and initial of each. If
--             one has windows of a calendar, its step is below zero, and the next one has in place
--             of these numbers the start of the present window, the mean length of windows, and its
--             end; then the last one has the instants between which that holds, 0, 0 and -2;
--           * in a batch of kind 2, for each run of buckets that are charged alike: how many
--             buckets, their limit, their phase, how many charges each has, and the units of each
--             charge;
--           * in any other batch: how many operations, and of each its code and the numbers that
--             `operations.lua` lists.
--
-- Returns   * now;
--           * the time of initialization, or false if it does not count;
--           * the buckets as they were before, 48 bytes each, concatenated;
--           * the place of each key without a bucket, negative if it holds something else.
--
-- The client computes the verdicts from this by the same formula. If what it says of calendars does
-- not hold now, it gets now and nothing else, and nothing is done.
--
-- For example, `KEYS` are `tollgate:login:alice` and `tollgate:login:bob`, and one charge of 1
-- token each is sent for 5 a minute (gain 1, token 12,000,000, capacity 60,000,000, step 1, initial
-- 60,000,000). `ARGV[1]` is: 2; 1, 1, 12e6, 60e6, 1, 60e6; 2, 1, 0, 1, 12e6. If only bob has a
-- bucket, the script returns now, false, the 48 bytes of bob's bucket, and 1.

-- A bucket is stored as value, ts, gain, token, capacity, step; the step is negative if it began
-- below its capacity.
local NUMBERS = '<dddddd'
-- How many values a function returns at once. Lua's stack has room for 8,000.
local CHUNK = 1000

local call, try, pack, decode, format = redis.call, redis.pcall, struct.pack, struct.unpack, string.format
local sub = string.sub
local keys, argument = KEYS, ARGV[1]
local buckets, numbers = #keys, #argument / 8
local raw, args = {}, nil
-- Whether every key holds a value of a bucket's length.
local is_all_stored = true

-- Reads one byte more than a bucket has: that is enough to detect a longer value. Reading all of a
-- foreign value of 64 MB would hold up everything else. A missing value reads as an empty string.
for k = 1, buckets do
  local found = try('GETRANGE', keys[k], '0', '48')
  if #found == 48 then
    raw[k] = found
  else
    is_all_stored = false
    if #found > 0 then
      raw[k] = found
    elseif found == '' then
      raw[k] = false
    elseif string.find(found.err, 'WRONGTYPE', 1, true) then
      raw[k] = ''
    else
      -- Raises any other error: a bucket must not count as absent because the user may not read it.
      call('GETRANGE', keys[k], '0', '48')
    end
  end
end

if numbers <= CHUNK then
  args = { decode('<' .. string.rep('d', numbers), argument) }
else
  args = {}
  for first = 1, numbers, CHUNK do
    local last = math.min(numbers, first + CHUNK - 1)
    local chunk = { decode('<' .. string.rep('d', last - first + 1), argument, first * 8 - 7) }
    for i = 1, last - first + 1 do
      args[first + i - 1] = chunk[i]
    end
  end
end

-- The reply of the script.
local function answer(initialized_at)
  if is_all_stored then
    return { now, initialized_at, table.concat(raw, '', 1, buckets) }
  end
  local all, stored = { now, initialized_at, '' }, {}
  for k = 1, buckets do
    local found = raw[k]
    if found and #found == 48 then
      stored[#stored + 1] = found
    else
      all[#all + 1] = found and -k or k
    end
  end
  all[3] = table.concat(stored)
  return all
end

-- The grid of the expiries of a limit: an eighth of the time in which a bucket fills, in whole
-- milliseconds.
local function expiry_grid(gain, capacity, step)
  local millis = floor(step * steps_to_gain(gain, capacity) / 8000)
  return millis > 1 and millis * 1000 or 1000
end

-- Stores a bucket with an expiry. It expires once it equals an absent one: when it is full, rounded
-- up to the end of that part of the grid. So most charges change the instant at which it is full,
-- but not its expiry. A bucket that starts below its capacity never equals an absent one: it is
-- kept for 30 days after it is full.
--
-- For example, a bucket fills in 8 minutes, so its grid is a minute. If it is full at 12:00:20, it
-- expires at 12:01:00. A charge that moves the first instant to 12:00:50 leaves the second as it
-- is.
--
-- The numbers are parameters of their own, because every local of the script that a function refers
-- to costs 1 % of a lone decision.
local function store(k, grid, full, value, ts, gain, token, capacity, step, initial)
  local expires_at = (full - full % grid + grid) / 1000
  -- The window may have started before the epoch, but no key may expire then.
  if expires_at < 1 then
    expires_at = 1
  end
  if initial ~= capacity then
    expires_at = math.max(expires_at, ceil(now / 1000)) + 2592000000
    step = -step
  end
  if full >= MAX_UNITS or expires_at > MAX_UNITS then
    -- Doubles are not exact beyond this.
    expires_at = MAX_UNITS
  end
  expires_at = format('%d', expires_at)
  local bucket = pack(NUMBERS, value, ts, gain, token, capacity, step)
  if raw[k] then
    call('SET', keys[k], bucket, 'PXAT', expires_at)
  elseif not call('SET', keys[k], bucket, 'PXAT', expires_at, 'NX') then
    -- The key holds an empty string, which reads like a missing value. The client has to learn that
    -- it is no bucket.
    raw[k] = ''
  end
end
