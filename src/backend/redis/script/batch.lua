-- What the client sends and what the server stores: read here for every batch, and written by `store`.
--
-- KEYS      the buckets, each once; behind them, if the time of initialization counts, the key that holds it.
-- ARGV[1]   doubles, low byte first: what kind of batch this is (1: the time of initialization counts, 2: all
--           operations are plain charges, 0: neither); how many limits; gain, token, capacity, step and initial of
--           each. Behind them, of kind 2 for each bucket: its limit, its phase, how many charges, and the units of each.
--           Of the others: how many operations; the operations, each its code and the numbers that `operations.lua`
--           lists.
-- Returns   now, and the value that each key had, at most 49 bytes of it. The client computes the verdicts from them by
--           the same formula.

-- A bucket is stored as value, ts, gain, token, capacity, step; the step is negative if it began below its capacity.
local NUMBERS = '<dddddd'
-- So many values are passed at once: Lua has room for 8,000.
local CHUNK = 1000

local call, try, pack, decode, format = redis.call, redis.pcall, struct.pack, struct.unpack, string.format
local buckets, numbers = #KEYS, #ARGV[1] / 8
local raw, args = {}, nil

-- A byte more than a bucket has is enough to tell a longer value apart. All of a value would be copied here, and sent to
-- the client: a foreign one of 64 MB would hold up everything else. A value that is not there is an empty one.
for k = 1, buckets do
  local found = try('GETRANGE', KEYS[k], '0', '48')
  if #found > 0 then
    raw[k] = found
  elseif found == '' then
    raw[k] = false
  elseif string.find(found.err, 'WRONGTYPE', 1, true) then
    raw[k] = ''
  else
    -- Any other error ends the script: no bucket counts as absent because the user may not read it.
    call('GETRANGE', KEYS[k], '0', '48')
  end
end

if numbers <= CHUNK then
  args = { decode('<' .. string.rep('d', numbers), ARGV[1]) }
else
  args = {}
  for first = 1, numbers, CHUNK do
    local last = math.min(numbers, first + CHUNK - 1)
    local chunk = { decode('<' .. string.rep('d', last - first + 1), ARGV[1], first * 8 - 7) }
    for i = 1, last - first + 1 do
      args[first + i - 1] = chunk[i]
    end
  end
end

-- Stores a bucket until it equals an absent one. A full one that does not, as it began below full, is kept for 30 days.
--
-- The numbers are written out here: every local of the script that a function refers to costs 1 % of a lone decision.
local function store(k, value, ts, gain, token, capacity, step, initial)
  local expires_at = ceil((ts + step * steps_to_gain(gain, capacity - value)) / 1000)
  -- A window may have started before the epoch, where no key may expire.
  if expires_at < 1 then
    expires_at = 1
  end
  if initial ~= capacity then
    expires_at = math.max(expires_at, ceil(now / 1000)) + 2592000000
    step = -step
  end
  if expires_at > 2 ^ 53 then
    expires_at = 2 ^ 53
  end
  expires_at = format('%d', expires_at)
  local bucket = pack(NUMBERS, value, ts, gain, token, capacity, step)
  if raw[k] then
    call('SET', KEYS[k], bucket, 'PXAT', expires_at)
  elseif not call('SET', KEYS[k], bucket, 'PXAT', expires_at, 'NX') then
    -- The key holds an empty string: the client has to learn that it is no bucket.
    raw[k] = ''
  end
end
