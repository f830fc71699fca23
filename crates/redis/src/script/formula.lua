-- The formula of `algebra/{bucket, charge, two_choices, refund, block, rescale}.rs`. `s` is the
-- index of a limit.

local min, max = math.min, math.max

-- If there are windows of a calendar, the last limit has the instants between which all that is said
-- of them holds.
do
  local from, before, _, _, mark = unpack(args, args[2] * 5 - 2, args[2] * 5 + 2)
  if mark == -2 and not (from <= now and now < before) then
    return { now }
  end
end

-- The numbers of each limit, by index.
local gain, token, capacity, step, initial = {}, {}, {}, {}, {}
-- The present of each limit, and the step under which its buckets are stored. Windows of a calendar
-- are counted: the present one is 0, and the step is 1. `start` and `stop` have the start and the end
-- of the present window, and `mean` the mean length of windows.
local present, stored_as, start, mean, stop = {}, {}, {}, {}, {}
for s = 1, args[2] do
  gain[s], token[s], capacity[s], step[s], initial[s] = unpack(args, s * 5 - 2, s * 5 + 2)
  present[s], stored_as[s] = now, step[s]
  if step[s] < 0 then
    present[s], stored_as[s], step[s] = 0, -step[s], 1
    start[s], mean[s], stop[s] = unpack(args, s * 5 + 3, s * 5 + 5)
  end
end

-- The time of a state as its limit counts: the number of its window in a calendar.
local function counted(s, ts)
  if start[s] then
    return floor(((ts - start[s]) * 2 + mean[s]) / (mean[s] * 2))
  end
  return ts
end

-- The time that is stored of a state.
local function time_of(s, ts)
  if not start[s] then
    return ts
  elseif ts <= 0 then
    return start[s]
  end
  -- No later than what can be counted, which is in the year 2255.
  local quarter = floor(mean[s] / 4)
  ts = min(ts, floor((MAX_UNITS - start[s] - quarter) / mean[s]))
  return start[s] + mean[s] * ts + quarter
end

-- The phase of windows that begin with the first use of a full bucket.
local FIRST_USE = -MAX_UNITS

-- The start of the window around an instant, as a limit counts it.
local function last_gain(s, phase, at)
  if phase == FIRST_USE then
    return at
  end
  return window_at(step[s], phase, at)
end

local function absent(s, phase, at)
  return initial[s], last_gain(s, phase, at)
end

-- The state of a bucket at an instant, as its limit counts it.
local function refreshed(s, phase, value, ts, at)
  value, ts = refresh(gain[s], capacity[s], step[s], value, ts, at)
  if phase == FIRST_USE and value == capacity[s] then
    -- The next use begins a window.
    return value, max(ts, at)
  end
  return value, ts
end

-- The highest value to which a refund may lift a bucket. It must not open a blocked one.
local function refund_cap(s, value, ts)
  if ts > present[s] and value < 0 then
    return max(capacity[s] - MAX_UNITS, -1)
  end
  return capacity[s]
end

local ADMITTED, RESERVED, REFUSED = 1, 2, 3

-- The time until a bucket that was refreshed to now is out of debt.
local function wait(s, value, ts)
  if value >= 0 then
    return 0
  end
  return (ts - present[s] + step[s]) + step[s] * (steps_to_gain(gain[s], -value) - 1)
end

-- The verdict, and the value that is left in a bucket that was refreshed to now; only the verdict
-- if it is a refusal.
local function charge(s, value, ts, units, lowest, max_wait)
  if value >= units then
    return ADMITTED, value - units
  elseif units <= value - lowest and wait(s, value - units, ts) <= max_wait then
    return RESERVED, value - units
  end
  return REFUSED
end

-- The verdict, and the values that are left in two shards, in their order.
local function charge_pair(s, value, ts, value2, ts2, units, lowest, max_wait)
  local fuller, fuller_ts, poorer, poorer_ts = value, ts, value2, ts2
  local swapped = value2 > value
  if swapped then
    fuller, fuller_ts, poorer, poorer_ts = value2, ts2, value, ts
  end
  local verdict, alone = charge(s, fuller, fuller_ts, units, lowest, max_wait)
  local fuller_left, poorer_left = alone, poorer

  if verdict ~= ADMITTED then
    -- Adds halves, so that no sum exceeds what a double holds exactly.
    local half_fuller, half_poorer, half_units = floor(fuller / 2), floor(poorer / 2), floor(units / 2)
    local odd = fuller - half_fuller * 2 + poorer - half_poorer * 2 - (units - half_units * 2)
    local held = half_fuller - half_units
    local too_deep = half_poorer < 0 and held < -MAX_UNITS - half_poorer
    local split_poorer = held + half_poorer + floor(odd / 2)
    local split_fuller = split_poorer + odd % 2
    local split = not too_deep and split_poorer <= poorer and split_fuller <= fuller
    if split and split_poorer >= 0 then
      verdict, fuller_left, poorer_left = ADMITTED, split_fuller, split_poorer
    elseif
      verdict == REFUSED and split and split_poorer >= lowest
      and max(wait(s, split_fuller, fuller_ts), wait(s, split_poorer, poorer_ts)) <= max_wait
    then
      verdict, fuller_left, poorer_left = RESERVED, split_fuller, split_poorer
    end
  end
  if verdict == REFUSED then
    return verdict, value, value2
  elseif swapped then
    return verdict, poorer_left, fuller_left
  end
  return verdict, fuller_left, poorer_left
end

local function give(s, value, units, cap)
  return max(capacity[s] - MAX_UNITS, min(cap, value + units))
end

local function untouched(s, phase, value, ts, left, left_ts)
  value, ts = refreshed(s, phase, value, ts, present[s])
  left, left_ts = refreshed(s, phase, left, counted(s, left_ts), present[s])
  return value == left and ts == left_ts
end

-- The time is how many windows a block touches, if they are those of a calendar.
local function block(s, phase, value, ts, time)
  value, ts = refreshed(s, phase, value, ts, present[s])
  local block_end = min(MAX_UNITS, present[s] + time)
  if block_end <= present[s] then
    return value, ts
  end
  value, ts = refresh(gain[s], capacity[s], step[s], value, ts, block_end - 1)
  return max(capacity[s] - MAX_UNITS, min(-1, value)), ts
end

-- Returns a * b / c, rounded down, and the remainder. The product may be too large for a double, so
-- it is divided bit by bit while it is built: `quotient` and `rest` are doubled for each bit of
-- `b`, and `a` is added where the bit is 1.
local function scale(a, b, c)
  local whole = floor(a / c)
  local r = a - whole * c
  local quotient, rest, bit, bits = 0, 0, MAX_UNITS, b
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

-- Whether a bucket that is counted in the old numbers takes those of a limit also if it refuses a
-- charge: if they refill at least as fast.
local function yields(s, old_gain, old_token, old_step)
  -- A product of three numbers, in digits of 2^53.
  local function product(a, b, c)
    local high, low = scale(a, b, MAX_UNITS)
    local top, middle = scale(high, c, MAX_UNITS)
    local carry
    carry, low = scale(low, c, MAX_UNITS)
    if middle >= MAX_UNITS - carry then
      return top + 1, middle - (MAX_UNITS - carry), low
    end
    return top, middle + carry, low
  end

  if initial[s] ~= capacity[s] then
    return true
  end
  local top, middle, low = product(gain[s], old_token, old_step)
  local old_top, old_middle, old_low = product(old_gain, token[s], stored_as[s])
  if top ~= old_top then
    return top > old_top
  elseif middle ~= old_middle then
    return middle > old_middle
  end
  return low >= old_low
end

-- The value, time and present of a bucket by the numbers in which it is stored. Those do not say where
-- the windows of another calendar begin, so these count with their step, which none exceeds.
local function refresh_stored(s, value, ts, old_gain, old_capacity, old_step)
  if start[s] and old_step == stored_as[s] then
    value, ts = refresh(old_gain, old_capacity, 1, value, counted(s, ts), 0)
    return value, ts, 0
  end
  value, ts = refresh(old_gain, old_capacity, old_step, value, ts, now)
  return value, ts, now
end

-- Converts the state of a bucket from the old quota to that of its limit. The time is as it is
-- stored.
local function rescale(s, phase, value, ts, old_gain, old_token, old_capacity, old_step)
  local at
  value, ts, at = refresh_stored(s, value, ts, old_gain, old_capacity, old_step)
  local is_blocked = value < 0 and ts > at
  if start[s] and at == now then
    -- A block holds to the end of the window in which it ends.
    local behind = ts - stop[s] + floor(mean[s] / 8)
    ts, at = is_blocked and ts >= stop[s] and floor(behind / mean[s]) + 1 or 0, 0
  end
  local held, held_ts = absent(s, phase, max(at, ts))
  local used = min(MAX_UNITS, old_capacity - value)
  if used == 0 then
    return held, held_ts
  end
  local part, rest = scale(used, token[s], old_token)
  local left = capacity[s] - min(MAX_UNITS, part + (rest > 0 and 1 or 0))
  if not is_blocked then
    return left, held_ts
  end
  -- Blocked. A window that starts before `ts` would gain too soon, or count as one without a block.
  local following = held_ts + step[s]
  if held_ts < ts and following < MAX_UNITS then
    held_ts = following
  end
  return max(capacity[s] - MAX_UNITS, min(-1, left)), held_ts
end
