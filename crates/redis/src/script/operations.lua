-- The operations, by code: charges, adjustments and resets, as in `backend/redis/operation.rs`.

-- The time at which every absent bucket was empty, if that counts.
local initialized_at
if args[1] == 1 then
  local noted = raw[buckets]
  -- Whole microseconds, as the client reads them. Anything else is overwritten.
  initialized_at = noted and #noted <= 16 and string.find(noted, '^%d+$') and tonumber(noted)
  if not initialized_at or initialized_at >= MAX_UNITS or initialized_at > latest then
    initialized_at = now
    call('SET', keys[buckets], format('%.0f', now))
  end
  buckets = buckets - 1
end

-- The buckets as the operations find them, one operation after the other. A cell is nil before the
-- first look, false if the bucket is absent, 0 if the key holds something else, and otherwise
-- value, ts, gain, token, capacity, step. `changed` says which of them are to be stored.
local cells, changed = {}, {}

-- The buckets that were reset since the store has lost its data: they are not stored, and count as
-- full. Such a reset leaves a mark, the record of a bucket that no limit has. `marked` has the
-- buckets that are to get one.
local is_reset, marked = {}, {}
-- How long a mark is kept since the loss: 32 days, in which all limits by the month and shorter ones
-- have filled. From then on, a bucket that is not stored is full in any case.
local MARK_TIME = 2764800000000

-- Whether a double is a whole number that it holds exactly.
local function is_whole(number)
  return number >= -MAX_UNITS and number <= MAX_UNITS and number % 1 == 0
end

-- Whether what was found is the mark of a reset: `main.lua` writes it.
local function is_mark(found)
  local value, ts, old_gain, old_token, old_capacity, old_step = unpack(found)
  return value == 0 and is_whole(ts) and ts >= 0
    and old_gain == 1 and old_token == MAX_UNITS and old_capacity == 0 and old_step == 1
end

local function cell(k)
  local found = cells[k]
  if found == nil then
    local stored = raw[k]
    if not stored then
      found = false
    elseif #stored ~= 48 then
      found = 0
    else
      found = { decode(NUMBERS, stored) }
      if is_mark(found) then
        found, is_reset[k] = false, true
      end
    end
    cells[k] = found
  end
  return found
end

-- The state of a bucket that is not stored.
local function first(k, s, phase)
  if initialized_at and not is_reset[k] then
    local ts = last_gain(s, phase, initialized_at)
    if start[s] then
      ts = min(0, floor((initialized_at - start[s]) / stored_as[s]))
    end
    local value
    value, ts = refreshed(s, phase, 0, ts, present[s])
    return min(initial[s], value), ts
  end
  return absent(s, phase, present[s])
end

-- The step of a limit as it is stored: negative if its buckets begin below the capacity.
local function stored_step(s)
  return initial[s] == capacity[s] and stored_as[s] or -stored_as[s]
end

-- Whether a state means the same under the old and the new quota, so that it needs no conversion.
local function is_counted_in(s, phase, ts, old_gain, old_token, old_capacity, old_stored_step)
  return old_gain == gain[s] and old_token == token[s] and old_capacity == capacity[s]
    and old_stored_step == stored_step(s) and (start[s] or phase == FIRST_USE or ts % step[s] == phase)
end

-- Whether a bucket is full by the quota that it was stored for. One that was stored for another
-- quota may have been dropped by now, so if it is full it counts as absent in all respects.
local function is_full(found, s)
  return refresh_stored(s, found[1], found[2], found[3], found[5], math.abs(found[6])) == found[5]
end

-- The state of a bucket, converted to the quota of a limit and with the time as that counts; nil if
-- the key holds something else.
local function read(k, s, phase)
  local found = cell(k)
  if found == 0 then
    return nil
  elseif not found then
    return first(k, s, phase)
  end
  local value, ts = found[1], found[2]
  if not (is_whole(value) and is_whole(ts) and value <= found[5] and value >= found[5] - 2 ^ 53)
    or ts < 0 and ts <= -math.abs(found[6])
  then
    return nil
  end
  -- A time that no right clock has left, of a bucket that is not blocked nor in debt.
  local is_ahead = ts > latest and value >= 0 and value > found[5] - 2 ^ 53
  if not is_ahead and is_counted_in(s, phase, ts, found[3], found[4], found[5], found[6]) then
    return value, counted(s, ts)
  end
  for i = 3, 6 do
    local number = i == 6 and math.abs(found[i]) or found[i]
    if not is_whole(number) or number < (i == 5 and 0 or 1) then
      return nil
    end
  end
  if found[6] < 0 and found[5] == 0 then
    return nil
  end
  if is_ahead then
    local is_own_step = math.abs(found[6]) == stored_as[s]
    found[2] = is_own_step and (start[s] or last_gain(s, phase, now)) or now
    changed[k] = true
    return read(k, s, phase)
  elseif is_full(found, s) then
    return first(k, s, phase)
  end
  return rescale(s, phase, value, ts, found[3], found[4], found[5], math.abs(found[6]))
end

local function write(k, s, value, ts)
  cells[k] = { value, time_of(s, ts), gain[s], token[s], capacity[s], stored_step(s) }
  changed[k] = true
  is_reset[k], marked[k] = nil, nil
end

-- Whether a bucket that was read is stored and does not count as absent.
local function is_stored(k, s, phase)
  local found = cells[k]
  return found and (is_counted_in(s, phase, unpack(found, 2)) or not is_full(found, s))
end

-- Stores a bucket from which nothing was taken, if this is its first use and it starts below its
-- capacity: it begins to fill now.
local function use(k, s, phase, value, ts)
  if initial[s] ~= capacity[s] and not is_stored(k, s, phase) then
    write(k, s, value, ts)
  end
end

-- Stores a bucket that refused a charge, if it takes the numbers of the limit or this is its first
-- use. The client is told a wait by the new numbers, so the bucket has to gain by them from now on.
local function refuse(k, s, phase, value, ts)
  local found = cells[k]
  if not found or is_full(found, s) then
    use(k, s, phase, value, ts)
  elseif not is_counted_in(s, phase, unpack(found, 2))
    and yields(s, found[3], found[4], math.abs(found[6]))
  then
    write(k, s, value, ts)
  end
end

-- The limit with the numbers in which a bucket that was read is counted, if some of it is used by
-- other numbers than those of `s`; and units and a state of `s` in these numbers. Nothing is known
-- of the start of its windows: those of the state begin with that of the bucket.
local function own_limit(k, s, phase, units, value, ts)
  local found = cells[k]
  if not found or is_counted_in(s, phase, unpack(found, 2)) or is_full(found, s) then
    return nil
  end
  local own = #gain + 1
  gain[own], token[own], capacity[own], step[own] = found[3], found[4], found[5], math.abs(found[6])
  initial[own] = found[6] < 0 and found[5] - 1 or found[5]
  present[own], stored_as[own] = now, step[own]
  if start[s] and step[own] == stored_as[s] then
    start[own], mean[own], stop[own], present[own], step[own] = start[s], mean[s], stop[s], 0, 1
  end
  -- More than can be counted empties or fills any bucket.
  if units > -MAX_UNITS and units < MAX_UNITS then
    local part, rest = scale(math.abs(units), token[own], token[s])
    units = units < 0 and -part - (rest > 0 and 1 or 0) or part
  end
  value, ts = rescale(own, found[2], value, ts, gain[s], token[s], capacity[s], stored_as[s])
  return own, units, value, time_of(own, ts)
end

-- One charge on one bucket, without debt.
local function take(k, s, phase, units)
  local value, ts = read(k, s, phase)
  if value then
    value, ts = refreshed(s, phase, value, ts, present[s])
    if value < units then
      refuse(k, s, phase, value, ts)
    elseif units > 0 or initial[s] ~= capacity[s] then
      write(k, s, value - units, ts)
    end
  end
end

-- The operations by code. Each takes the position of its code in `args`, and returns the position
-- behind the operation.
local operations = {}

-- `take`: bucket, limit, phase, units.
operations[1] = function(at)
  take(unpack(args, at + 1, at + 4))
  return at + 5
end

-- Charges, all or nothing. The numbers are: how many; of each the two buckets (the second is 0 if
-- there is one), limit, phase, units, the lowest value that may be left, the longest wait, and 1 if
-- it takes.
operations[2] = function(at)
  local count = args[at + 1]
  local behind = at + 2 + count * 8
  -- What the charges so far leave in each bucket, and for which limit. `taking` has the charges
  -- that take, for what to store in the end.
  local left, left_ts, left_s = {}, {}, {}
  local taking = {}
  local refused = false

  -- The state that a charge finds, and whether the charge cannot reserve: more is used than its
  -- limit holds, by numbers that refill faster.
  local function see(k, s, phase)
    local value, ts, before = left[k], left_ts[k], left_s[k]
    if not value then
      value, ts = read(k, s, phase)
      if not value then
        return nil
      end
      local found = cells[k]
      value, ts = refreshed(s, phase, value, ts, present[s])
      return value, ts, value < 0 and found and not is_counted_in(s, phase, unpack(found, 2))
        and not is_full(found, s) and not yields(s, found[3], found[4], math.abs(found[6]))
    elseif is_counted_in(s, phase, ts, gain[before], token[before], capacity[before], stored_step(before)) then
      value, ts = refreshed(s, phase, value, ts, present[s])
      return value, ts, false
    end
    ts = time_of(before, ts)
    value, ts = rescale(s, phase, value, ts, gain[before], token[before], capacity[before], stored_as[before])
    return value, ts, value < 0 and not yields(s, gain[before], token[before], stored_as[before])
  end

  local function leave(k, s, phase, value, ts, takes, pays)
    if takes == 1 then
      left[k], left_ts[k], left_s[k] = value, ts, s
      taking[#taking + 1] = { k, s, phase, value, ts, pays }
    end
  end

  for i = 0, count - 1 do
    local k, k2, s, phase, units, lowest, max_wait, takes = unpack(args, at + 2 + i * 8, at + 9 + i * 8)
    local value, ts, at_once = see(k, s, phase)
    if not value then
      return behind
    end
    local changes = units > 0 or initial[s] ~= capacity[s]
    if k2 == 0 then
      if at_once then
        lowest, max_wait = 0, 0
      end
      local verdict, after = charge(s, value, ts, units, lowest, max_wait)
      refused = refused or verdict == REFUSED
      -- Charges behind a refused one are judged as if it had been taken, so that each wait covers
      -- the charges before it.
      leave(k, s, phase, after or value - units, ts, takes, changes)
    else
      local value2, ts2, at_once2 = see(k2, s, phase)
      if not value2 then
        return behind
      end
      if at_once or at_once2 then
        lowest, max_wait = 0, 0
      end
      local verdict, after, after2 = charge_pair(s, value, ts, value2, ts2, units, lowest, max_wait)
      refused = refused or verdict == REFUSED
      leave(k, s, phase, after, ts, takes, after < value)
      leave(k2, s, phase, after2, ts2, takes, after2 < value2)
    end
  end

  for _, it in ipairs(taking) do
    local k, s, phase, value, ts, pays = unpack(it)
    if refused then
      -- Read again: a charge before it may have changed the numbers.
      value, ts = read(k, s, phase)
      value, ts = refreshed(s, phase, value, ts, present[s])
      refuse(k, s, phase, value, ts)
    elseif pays then
      write(k, s, value, ts)
    else
      use(k, s, phase, value, ts)
    end
  end
  return behind
end

-- Adjustments, all or nothing. The numbers are: how many; of each bucket, limit, phase, what to do
-- (0: give back, 1: block), units or time; 1 and a state if the bucket must be untouched since a
-- charge left that state; 1 and a state if what it has gained since a charge left that state
-- counts. A block has in place of the first value how many windows of the calendar it touches.
--
-- They do not change the numbers of a bucket of which some is used.
operations[3] = function(at)
  local count = args[at + 1]
  local behind = at + 2 + count * 11
  for i = 0, count - 1 do
    local k, s, phase, _, _, conditional, left, left_ts = unpack(args, at + 2 + i * 11, at + 9 + i * 11)
    local value, ts = read(k, s, phase)
    if not value then
      return behind
    end
    if conditional == 1 then
      local own, _, own_left, own_left_ts = own_limit(k, s, phase, 0, left, left_ts)
      if own then
        s, phase, left, left_ts = own, 0, own_left, own_left_ts
        value, ts = cells[k][1], counted(s, cells[k][2])
      end
      if not untouched(s, phase, value, ts, left, left_ts) then
        return behind
      end
    end
  end
  for i = 0, count - 1 do
    local k, s, phase, blocks, units, conditional, windows, _, gains_count, since, since_ts =
      unpack(args, at + 2 + i * 11, at + 12 + i * 11)
    local value, ts = read(k, s, phase)
    local stored = blocks == 1 and units > 0 or blocks == 0 and units < 0 or is_stored(k, s, phase)
    local own, own_units, own_since, own_since_ts = own_limit(k, s, phase, units, since, since_ts)
    if own then
      s, phase, since, since_ts = own, 0, own_since, own_since_ts
      value, ts = cells[k][1], counted(s, cells[k][2])
      if blocks == 0 then
        units = own_units
      end
    end
    if stored then
      if blocks == 1 then
        value, ts = block(s, phase, value, ts, start[s] and windows or units)
      else
        value, ts = refreshed(s, phase, value, ts, present[s])
        local cap = capacity[s]
        if conditional == 0 then
          cap = refund_cap(s, value, ts)
          if gains_count == 1 then
            local held = refresh(gain[s], capacity[s], step[s], since, counted(s, since_ts), present[s])
            units = min(units, max(0, capacity[s] - held))
          end
        end
        value = give(s, value, units, cap)
      end
      write(k, s, value, ts)
    end
  end
  return behind
end

-- Resets. The numbers are: how many, and the buckets.
operations[4] = function(at)
  local count = args[at + 1]
  for i = 1, count do
    local k = args[at + 1 + i]
    -- Deletes at once, because the key may hold another type, which `store` does not overwrite.
    call('DEL', keys[k])
    cells[k], changed[k] = false, nil
    is_reset[k] = initialized_at and now < initialized_at + MARK_TIME or nil
    marked[k] = is_reset[k]
  end
  return at + 2 + count
end
