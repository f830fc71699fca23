-- The formula of `algebra/{bucket, charge, two_choices, refund, block, rescale}.rs`. `s` is the
-- index of a limit.

local min, max = math.min, math.max

-- The numbers of each limit, by index.
local gain, token, capacity, step, initial = {}, {}, {}, {}, {}
for s = 1, args[2] do
  gain[s], token[s], capacity[s], step[s], initial[s] = unpack(args, s * 5 - 2, s * 5 + 2)
end

local function absent(s, phase, at)
  return initial[s], window_at(step[s], phase, at)
end

-- The highest value to which a refund may lift a bucket. It must not open a blocked one.
local function refund_cap(s, value, ts)
  if ts > now and value < 0 then
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
  return (ts - now + step[s]) + step[s] * (steps_to_gain(gain[s], -value) - 1)
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

local function untouched(s, value, ts, left, left_ts)
  value, ts = refresh(gain[s], capacity[s], step[s], value, ts, now)
  left, left_ts = refresh(gain[s], capacity[s], step[s], left, left_ts, now)
  return value == left and ts == left_ts
end

local function block(s, value, ts, time)
  local block_end = min(MAX_UNITS, now + time)
  if block_end <= now then
    return refresh(gain[s], capacity[s], step[s], value, ts, now)
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

-- Converts the state of a bucket from the old quota to that of its limit.
local function rescale(s, phase, value, ts, old_gain, old_token, old_capacity, old_step)
  value, ts = refresh(old_gain, old_capacity, old_step, value, ts, now)
  local held, held_ts = absent(s, phase, max(now, ts))
  local used = min(MAX_UNITS, old_capacity - value)
  if used == 0 then
    return held, held_ts
  end
  local part, rest = scale(used, token[s], old_token)
  local left = capacity[s] - min(MAX_UNITS, part + (rest > 0 and 1 or 0))
  if value >= 0 or ts <= now then
    return left, held_ts
  end
  -- Blocked. A window that starts before `ts` would gain too soon, or count as one without a block.
  local following = held_ts + step[s]
  if held_ts < ts and following < MAX_UNITS then
    held_ts = following
  end
  return max(capacity[s] - MAX_UNITS, min(-1, left)), held_ts
end
