-- What the client sends and what the server stores: read here for every batch, and written by `store`.
--
-- KEYS      the buckets, each once; behind them, if the time of initialization counts, the key that holds it.
-- ARGV[1]   doubles, low byte first: what kind of batch this is (1: the time of initialization counts, 2: all
--           operations are plain charges, 0: neither); how many limits; gain, token, capacity, step and initial of
--           each; how many operations; the operations, each its code and the numbers that `operations.lua` lists.
-- Returns   now, and the value that each key had. The client computes the verdicts from them by the same formula.

-- A bucket is stored as value, ts, gain, token, capacity, step; the step is negative if it began below its capacity.
local NUMBERS = '<dddddd'
-- So many values are passed at once: Lua has room for 8,000.
local CHUNK = 1000

local call, pack, decode, format = redis.call, struct.pack, struct.unpack, string.format
local buckets, numbers = #KEYS, #ARGV[1] / 8
local raw, args

if buckets <= CHUNK and numbers <= CHUNK then
  raw = call('MGET', unpack(KEYS))
  args = { decode('<' .. string.rep('d', numbers), ARGV[1]) }
else
  -- Concatenates what `read` returns for each chunk of 1 to `count`.
  local function chunks(count, read)
    local list = {}
    for first = 1, count, CHUNK do
      for i, value in ipairs(read(first, math.min(count, first + CHUNK - 1))) do
        list[first + i - 1] = value
      end
    end
    return list
  end
  raw = chunks(buckets, function(first, last)
    return call('MGET', unpack(KEYS, first, last))
  end)
  args = chunks(numbers, function(first, last)
    return { decode('<' .. string.rep('d', last - first + 1), ARGV[1], first * 8 - 7) }
  end)
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
    -- The key holds another type, which `MGET` does not show: the client has to learn that it is no bucket.
    raw[k] = ''
  end
end
