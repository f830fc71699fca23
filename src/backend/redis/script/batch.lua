-- What the client sends and what the server stores: read here for every batch, and written by
-- `store`.
--
-- KEYS      the buckets, each once; behind them, if the time of initialization counts, the key that
-- holds it. ARGV[1]   doubles, low byte first: what kind of batch this is (1: the time of
-- initialization counts, 2: all operations are plain charges, 0: neither); how many limits; gain,
-- token, capacity, step and initial of each. Behind them, of kind 2 for all buckets that are
-- charged alike and follow each other: how many these are, their limit, their phase, how many
-- charges each has, and the units of each charge. Of the others: how many operations; the
-- operations, each its code and the numbers that `operations.lua` lists. Returns   now; the time of
-- initialization, if that counts; the buckets as they were, 48 bytes of each, one behind the other;
-- and the place of each key that has none, below zero if it holds something else. The client
-- computes the verdicts from them by the same formula.

-- A bucket is stored as value, ts, gain, token, capacity, step; the step is negative if it began
-- below its capacity.
local NUMBERS = '<dddddd'
-- So many values are passed at once: Lua has room for 8,000.
local CHUNK = 1000

local call, try, pack, decode, format = redis.call, redis.pcall, struct.pack, struct.unpack, string.format
local sub = string.sub
local keys, argument = KEYS, ARGV[1]
local buckets, numbers = #keys, #argument / 8
local raw, args = {}, nil
-- Whether every key holds something of a bucket's length.
local is_all_stored = true

-- A byte more than a bucket has is enough to tell a longer value apart. All of a value would be
-- copied here: a foreign one of 64 MB would hold up everything else. A value that is not there is
-- an empty one.
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
      -- Any other error ends the script: no bucket counts as absent because the user may not read
      -- it.
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

-- What is returned.
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

-- How exactly the expiry of a limit's buckets is told: to an eighth of the time in which one fills,
-- in whole milliseconds.
local function expiry_grid(gain, capacity, step)
  local millis = floor(step * steps_to_gain(gain, capacity) / 8000)
  return millis > 1 and millis * 1000 or 1000
end

-- Stores a bucket until it equals an absent one: until it is full, and to the end of that part of
-- the grid. So most charges move the instant at which it is full and not its expiry. A full one
-- that does not, as it began below full, is kept for 30 days.
--
-- The numbers are written out here: every local of the script that a function refers to costs 1 %
-- of a lone decision.
local function store(k, grid, full, value, ts, gain, token, capacity, step, initial)
  local expires_at = (full - full % grid + grid) / 1000
  -- A window may have started before the epoch, where no key may expire.
  if expires_at < 1 then
    expires_at = 1
  end
  if initial ~= capacity then
    expires_at = math.max(expires_at, ceil(now / 1000)) + 2592000000
    step = -step
  end
  if full >= MAX_UNITS or expires_at > MAX_UNITS then
    -- Later than numbers are exact.
    expires_at = MAX_UNITS
  end
  expires_at = format('%d', expires_at)
  local bucket = pack(NUMBERS, value, ts, gain, token, capacity, step)
  if raw[k] then
    call('SET', keys[k], bucket, 'PXAT', expires_at)
  elseif not call('SET', keys[k], bucket, 'PXAT', expires_at, 'NX') then
    -- The key holds an empty string: the client has to learn that it is no bucket.
    raw[k] = ''
  end
end
