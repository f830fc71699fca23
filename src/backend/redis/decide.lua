-- The formula of `src/algebra`, with the same names in the same order. `now` was read above.
--
-- KEYS      the buckets, each once; behind them, if births count, where that of the store is noted.
-- ARGV[1]   doubles, the low end first: 1 if births count, 2 if every operation is of the first kind; how many
--           limits; of each gain, token, capacity, step, initial; how many operations; the operations, each a code
--           and what is read for it below.
-- Returns   now, and what was found under each key: the client works out by the same formula what came of it.
--
-- All numbers are whole and within 2^53, or more than is compared with them: then they are rounded to something
-- that is more as well. Where a sum could be between, it is taken apart.

local MOST = 9007199254740992
local floor, ceil, min, max, format = math.floor, math.ceil, math.min, math.max, string.format
local NUMBERS = '<dddddd'

-- How long a bucket is kept that is full, but not like one that was never used: 30 days, in milliseconds.
local KEEP = 2592000000

local buckets, numbers = #KEYS, #ARGV[1] / 8
local found, a
-- What was reset, whatever it was.
local forgotten = {}

-- Whether a number is one that is counted exactly.
local function whole(number)
  return number >= -MOST and number <= MOST and number % 1 == 0
end

local function store(k, bucket, forget_at)
  forget_at = format('%d', min(MOST, forget_at))
  if found[k] or forgotten[k] then
    redis.call('SET', KEYS[k], bucket, 'PXAT', forget_at)
  elseif not redis.call('SET', KEYS[k], bucket, 'PXAT', forget_at, 'NX') then
    -- There is something of another type, which `MGET` does not show: no bucket.
    found[k] = ''
  end
end

-- What nearly every batch is, in one piece: charges that are alone, on one bucket, without debt, of buckets that are
-- stored in the numbers of their limit or not at all. All of this could be left to what follows.
if buckets <= 1000 and numbers <= 1000 then
  found = redis.call('MGET', unpack(KEYS))
  a = { struct.unpack('<' .. string.rep('d', numbers), ARGV[1]) }
  local values, tss, limits, changed = {}, {}, {}, {}
  local at = a[2] * 5 + 4
  local plain = a[1] == 2

  while plain and at < numbers do
    local k, limit, phase, units = a[at + 1], a[at + 2] * 5 - 3, a[at + 3], a[at + 4]
    local gain, capacity, step = a[limit + 1], a[limit + 3], a[limit + 4]
    at = at + 5
    local value, ts = values[k], tss[k]
    if not value then
      local raw = found[k]
      limits[k] = limit
      if not raw then
        value, ts = a[limit + 5], now
        if step > 1 then
          ts = now - (now - phase) % step
        end
      elseif #raw == 48 then
        local old_gain, old_token, old_capacity, old_step
        value, ts, old_gain, old_token, old_capacity, old_step = struct.unpack(NUMBERS, raw)
        plain = old_gain == gain and old_token == a[limit + 2] and old_capacity == capacity and old_step == step
          and value <= capacity and value >= -MOST and value % 1 == 0
          and ts <= MOST and ts >= -MOST and (ts - phase) % step == 0
      else
        plain = false
      end
    elseif limits[k] ~= limit or step > 1 and (ts - phase) % step ~= 0 then
      plain = false
    end
    if plain then
      local steps = now - ts
      if steps > 0 then
        if step > 1 then
          steps = floor(steps / step)
        end
        value, ts = value + steps * gain, ts + steps * step
        if value > capacity then
          value = capacity
        end
      end
      if value >= units then
        value = value - units
        changed[k] = changed[k] or units > 0 or a[limit + 5] ~= capacity
      elseif not found[k] and a[limit + 5] ~= capacity then
        -- Refused on its first use, with which it begins to fill.
        changed[k] = true
      end
      values[k], tss[k] = value, ts
    end
  end

  if plain then
    for k = 1, buckets do
      if changed[k] then
        local value, ts, limit = values[k], tss[k], limits[k]
        local gain, capacity, step = a[limit + 1], a[limit + 3], a[limit + 4]
        local forget_at = max(1, ceil((ts + step * ceil((capacity - value) / gain)) / 1000))
        if a[limit + 5] ~= capacity then
          forget_at = max(forget_at, ceil(now / 1000)) + KEEP
        end
        store(k, struct.pack(NUMBERS, value, ts, gain, a[limit + 2], capacity, step), forget_at)
      end
    end
    return { now, found }
  end
end

-- What a function answers for a range, a part at a time: there is room for 8,000 values at once.
local function all(count, part)
  local list = {}
  for first = 1, count, 1000 do
    for i, it in ipairs(part(first, min(count, first + 999))) do
      list[first + i - 1] = it
    end
  end
  return list
end

found = found or all(buckets, function(first, last)
  return redis.call('MGET', unpack(KEYS, first, last))
end)
a = a or all(numbers, function(first, last)
  return { struct.unpack('<' .. string.rep('d', last - first + 1), ARGV[1], first * 8 - 7) }
end)
local born

-- What limits count in, by number.
local gain, token, capacity, step, initial = {}, {}, {}, {}, {}
local at = 2
for s = 1, a[2] do
  gain[s], token[s], capacity[s], step[s], initial[s] = unpack(a, at + 1, at + 5)
  at = at + 5
end

if a[1] == 1 then
  born = tonumber(found[buckets])
  if not born then
    born = now
    redis.call('SET', KEYS[buckets], string.format('%.0f', now))
  end
  buckets = buckets - 1
end

-- What is stored of a bucket: nil if that was not looked at yet, false if nothing is, 0 if it is something else;
-- otherwise value, ts, gain, token, capacity, step. And the limit in whose numbers it has to be stored.
local cells, changed = {}, {}

local function cell(k)
  local it = cells[k]
  if it == nil then
    local raw = found[k]
    if not raw then
      it = false
    elseif #raw ~= 48 then
      it = 0
    else
      it = { struct.unpack(NUMBERS, raw) }
    end
    cells[k] = it
  end
  return it
end

local function refresh(s, value, ts, at)
  local steps = at - ts
  if steps <= 0 then
    return min(capacity[s], value), ts
  end
  local every = step[s]
  if every > 1 then
    steps = floor(steps / every)
  end
  return min(capacity[s], value + steps * gain[s]), ts + steps * every
end

-- The start of the window around an instant; of a token bucket, that instant.
local function window_at(s, phase, at)
  local every = step[s]
  if every == 1 then
    return at
  end
  return at - (at - phase) % every
end

local function absent(s, phase)
  if born then
    local value, ts = refresh(s, 0, window_at(s, phase, born), now)
    return min(initial[s], value), ts
  end
  return initial[s], window_at(s, phase, now)
end

-- a * b / c, rounded down, of which the product may be too large for a double: it is divided while it is made, bit
-- by bit.
local function scaled(a, b, c)
  local whole = floor(a / c)
  local r = a - whole * c
  local quotient, rest, bit, bits = 0, 0, MOST, b
  while bit >= 1 do
    quotient = quotient * 2
    if rest >= c - rest then
      rest, quotient = rest - (c - rest), quotient + 1
    else
      rest = rest * 2
    end
    if bits >= bit then
      bits = bits - bit
      if rest >= c - r then
        rest, quotient = rest - (c - r), quotient + 1
      else
        rest = rest + r
      end
    end
    bit = bit / 2
  end
  return whole * b + quotient, rest
end

-- Carries a bucket over from other numbers: gain, token, capacity, step.
local function rescale(s, phase, value, ts, old_gain, old_token, old_capacity, old_step)
  local steps = max(0, now - ts)
  if old_step > 1 then
    steps = floor(steps / old_step)
  end
  value, ts = min(old_capacity, value + steps * old_gain), ts + steps * old_step
  if value < 0 then
    local part, rest = scaled(-value, token[s], old_token)
    value = -part - (rest > 0 and 1 or 0)
  else
    value = scaled(value, token[s], old_token)
  end
  return max(capacity[s] - MOST, min(capacity[s], value)), window_at(s, phase, max(now, ts))
end

-- What a bucket holds in the numbers of a limit; nil if it is none.
local function read(k, s, phase)
  local it = cell(k)
  if it == 0 then
    return nil
  elseif not it then
    return absent(s, phase)
  end
  local value, ts, every = it[1], it[2], step[s]
  if not (whole(value) and whole(ts) and value <= it[5]) then
    return nil
  end
  if
    it[3] == gain[s] and it[4] == token[s] and it[5] == capacity[s] and it[6] == every
    and (every == 1 or (ts - phase) % every == 0)
  then
    return value, ts
  end
  for i = 3, 6 do
    if not whole(it[i]) or it[i] < (i == 5 and 0 or 1) then
      return nil
    end
  end
  return rescale(s, phase, unpack(it))
end

local function write(k, s, value, ts)
  cells[k] = { value, ts, gain[s], token[s], capacity[s], step[s] }
  changed[k] = s
end

-- Stores what a bucket holds from which nothing was taken: only if this is its first use, and it begins to fill then.
local function use(k, s, value, ts)
  if cells[k] == false and initial[s] ~= capacity[s] then
    write(k, s, value, ts)
  end
end

local function steps_to_gain(s, units)
  return ceil(units / gain[s])
end

-- How long until a bucket that was just refreshed is out of debt.
local function wait(s, value, ts)
  if value >= 0 then
    return 0
  end
  local every = step[s]
  return (ts - now + every) + every * (steps_to_gain(s, -value) - 1)
end

local ADMITTED, RESERVED, REFUSED = 1, 2, 3

local function charge(s, value, ts, units, least, max_wait)
  if value >= units then
    return ADMITTED, value - units
  elseif units <= value - least and wait(s, value - units, ts) <= max_wait then
    return RESERVED, value - units
  end
  return REFUSED
end

-- What two shards are left with, in their order; nothing if they refuse.
local function charge_pair(s, value, ts, other, other_ts, units, least, max_wait)
  local fuller, fuller_ts, poorer, poorer_ts = value, ts, other, other_ts
  local swapped = other > value
  if swapped then
    fuller, fuller_ts, poorer, poorer_ts = other, other_ts, value, ts
  end
  local verdict, alone = charge(s, fuller, fuller_ts, units, least, max_wait)
  local fuller_left, poorer_left = alone, poorer

  if verdict ~= ADMITTED then
    -- Halves, so that no sum is beyond what is counted exactly.
    local half_fuller, half_poorer, half_units = floor(fuller / 2), floor(poorer / 2), floor(units / 2)
    local odd = fuller - half_fuller * 2 + poorer - half_poorer * 2 - (units - half_units * 2)
    local held = half_fuller - half_units
    local deepest = half_poorer < 0 and held < -MOST - half_poorer
    local split_poorer = held + half_poorer + floor(odd / 2)
    local split_fuller = split_poorer + odd % 2
    local split = not deepest and split_poorer <= poorer and split_fuller <= fuller
    if split and split_poorer >= 0 then
      verdict, fuller_left, poorer_left = ADMITTED, split_fuller, split_poorer
    elseif
      verdict == REFUSED and split and split_poorer >= least
      and max(wait(s, split_fuller, fuller_ts), wait(s, split_poorer, poorer_ts)) <= max_wait
    then
      verdict, fuller_left, poorer_left = RESERVED, split_fuller, split_poorer
    end
  end
  if verdict == REFUSED then
    return verdict, value, other
  elseif swapped then
    return verdict, poorer_left, fuller_left
  end
  return verdict, fuller_left, poorer_left
end

local function untouched(s, value, ts, left, left_ts)
  value, ts = refresh(s, value, ts, now)
  left, left_ts = refresh(s, left, left_ts, now)
  return value == left and ts == left_ts
end

local function give(s, value, units, most)
  return max(capacity[s] - MOST, min(most, value + units))
end

local function block(s, value, ts, time)
  local ends = min(MOST, now + time)
  if ends <= now then
    return refresh(s, value, ts, now)
  end
  value, ts = refresh(s, value, ts, ends - 1)
  return max(capacity[s] - MOST, min(-1, value)), ts
end

-- The operations, by code.
local operations = {}

-- A charge that is alone, on one bucket, without debt.
operations[1] = function(at)
  local k, s, phase, units = unpack(a, at + 1, at + 4)
  local value, ts = read(k, s, phase)
  if value then
    value, ts = refresh(s, value, ts, now)
    if value < units then
      use(k, s, value, ts)
    elseif units > 0 or initial[s] ~= capacity[s] then
      write(k, s, value - units, ts)
    end
  end
  return at + 5
end

-- Charges, all or nothing: how many; of each two buckets (the second is 0 if there is one), limit, phase, units, how
-- little may be left, how long may be waited, and whether it takes.
operations[2] = function(at)
  local count = a[at + 1]
  -- What the charges so far leave in a bucket, and the limit in whose numbers and windows; and what is stored of it
  -- in the end.
  local left, left_ts, left_s, left_phase = {}, {}, {}, {}
  local kept = {}
  local refused = false

  local function see(k, s, phase)
    local stands, stands_ts = read(k, s, phase)
    if not stands then
      return nil
    end
    stands, stands_ts = refresh(s, stands, stands_ts, now)
    local value, ts, before = left[k], left_ts[k], left_s[k]
    if not value then
      value, ts = stands, stands_ts
    elseif before ~= s or left_phase[k] ~= phase then
      value, ts = rescale(s, phase, value, ts, gain[before], token[before], capacity[before], step[before])
    end
    return value, ts, stands, stands_ts
  end

  local function leave(k, s, phase, value, ts, changes, taken, stands, stands_ts)
    left[k], left_ts[k], left_s[k], left_phase[k] = value, ts, s, phase
    if changes then
      kept[#kept + 1] = { k, s, value, ts, taken, stands, stands_ts }
    end
  end

  for i = 0, count - 1 do
    local k, other, s, phase, units, least, max_wait, takes = unpack(a, at + 2 + i * 8, at + 9 + i * 8)
    local value, ts, stands, stands_ts = see(k, s, phase)
    if not value then
      return at + 2 + count * 8
    end
    local changes = takes == 1 and (units > 0 or initial[s] ~= capacity[s])
    if other == 0 then
      local verdict, after = charge(s, value, ts, units, least, max_wait)
      refused = refused or verdict == REFUSED
      if takes == 0 then
        after = value
      end
      leave(k, s, phase, after or value - units, ts, changes, true, stands, stands_ts)
    else
      local value2, ts2, stands2, stands2_ts = see(other, s, phase)
      if not value2 then
        return at + 2 + count * 8
      end
      local verdict, after, after2 = charge_pair(s, value, ts, value2, ts2, units, least, max_wait)
      refused = refused or verdict == REFUSED
      if takes == 0 then
        after, after2 = value, value2
      end
      leave(k, s, phase, after, ts, changes, after < value, stands, stands_ts)
      leave(other, s, phase, after2, ts2, changes, after2 < value2, stands2, stands2_ts)
    end
  end

  for _, it in ipairs(kept) do
    local k, s, value, ts, taken, stands, stands_ts = unpack(it)
    if refused then
      use(k, s, stands, stands_ts)
    elseif taken then
      write(k, s, value, ts)
    else
      use(k, s, value, ts)
    end
  end
  return at + 2 + count * 8
end

-- Refunds, all or nothing: how many; of each bucket, limit, phase, what to do (0 give back, 1 close), units or time,
-- whether it has to hold what a charge left and that, and whether gains since a charge count and what that left.
operations[3] = function(at)
  local count = a[at + 1]
  local past = at + 2 + count * 11
  for i = 0, count - 1 do
    local k, s, phase, _, _, conditional, left, left_ts = unpack(a, at + 2 + i * 11, at + 9 + i * 11)
    local value, ts = read(k, s, phase)
    if not value or (conditional == 1 and not untouched(s, value, ts, left, left_ts)) then
      return past
    end
  end
  for i = 0, count - 1 do
    local k, s, phase, closes, units, conditional, _, _, late, since, since_ts =
      unpack(a, at + 2 + i * 11, at + 12 + i * 11)
    local takes = closes == 1 and units > 0 or closes == 0 and units < 0
    if takes or cells[k] then
      local value, ts = read(k, s, phase)
      if closes == 1 then
        value, ts = block(s, value, ts, units)
      else
        value, ts = refresh(s, value, ts, now)
        local most = capacity[s]
        if conditional == 0 then
          if ts > now and value < 0 then
            most = max(capacity[s] - MOST, -1)
          end
          if late == 1 then
            units = min(units, max(0, capacity[s] - refresh(s, since, since_ts, now)))
          end
        end
        value = give(s, value, units, most)
      end
      write(k, s, value, ts)
    end
  end
  return past
end

-- Resets: how many, and the buckets.
operations[4] = function(at)
  local count = a[at + 1]
  for i = 1, count do
    local k = a[at + 1 + i]
    cells[k], changed[k], forgotten[k] = false, 0, true
  end
  return at + 2 + count
end

local ask = at + 2
for _ = 1, a[at + 1] do
  ask = operations[a[ask]](ask)
end

for k, s in pairs(changed) do
  local it = cells[k]
  if not it then
    redis.call('DEL', KEYS[k])
  else
    local full_at = it[2] + it[6] * steps_to_gain(s, it[5] - it[1])
    -- A window may have begun before the epoch, and no key may expire there.
    local forget_at = max(1, ceil(full_at / 1000))
    if initial[s] ~= capacity[s] then
      forget_at = max(forget_at, ceil(now / 1000)) + KEEP
    end
    store(k, struct.pack(NUMBERS, unpack(it)), forget_at)
  end
end
return { now, found }
