-- The formula of `algebra/bucket.rs`. Names and order are those of `src/algebra`, here and in
-- `formula.lua`.
--
-- All numbers are whole and within 2^53, which a double holds exactly. Or they exceed every number
-- that they are compared with, and rounding keeps them so. A sum that could lie in between is
-- split.

local MAX_UNITS = 2 ^ 53
local floor, ceil = math.floor, math.ceil

-- The state of a bucket at an instant.
local function refresh(gain, capacity, step, value, ts, at)
  local steps = at - ts
  if steps > 0 then
    -- The common case, a token bucket, gains every microsecond and needs no division.
    if step > 1 then
      if steps > 2 ^ 53 then
        -- The distance is not exact: `ts` is far before the epoch. The next window starts after the
        -- epoch, so its distance is exact.
        value, ts = value + gain, ts + step
        steps = at - ts
      end
      steps = floor(steps / step)
    end
    value, ts = value + steps * gain, ts + steps * step
  end
  if value > capacity then
    value = capacity
  end
  return value, ts
end

-- The start of the window around an instant; for a token bucket, that instant.
local function window_at(step, phase, at)
  return at - (at - phase) % step
end

-- The number of steps in which a bucket gains so many units.
local function steps_to_gain(gain, units)
  return ceil(units / gain)
end

-- The instant at which a bucket is full.
local function full_at(gain, capacity, step, value, ts)
  return ts + step * ceil((capacity - value) / gain)
end
