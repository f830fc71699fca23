-- The fast way for nearly every batch: each operation is one charge, on one bucket, without debt, and each bucket is
-- absent or stored with the numbers of its limit. `operations[1]` decides the same, and does so in all other batches.
--
-- The fast way runs before the other functions exist: Lua makes them again for each call of the script, which would
-- cost a lone decision 11 % more of the server's time.

if args[1] == 2 then
  -- With room for one bucket, which need not be made later.
  local values, tss, limits, changed = { false }, { false }, { false }, { false }
  local at = args[2] * 5 + 4
  local plain = true

  while plain and at < numbers do
    local k, limit, phase, units = args[at + 1], args[at + 2] * 5 - 3, args[at + 3], args[at + 4]
    local gain, capacity, step = args[limit + 1], args[limit + 3], args[limit + 4]
    at = at + 5
    local value, ts = values[k], tss[k]
    if not value then
      local stored = raw[k]
      limits[k] = limit
      if not stored then
        value, ts = args[limit + 5], window_at(step, phase, now)
      elseif #stored == 48 then
        local old_gain, old_token, old_capacity, old_step
        value, ts, old_gain, old_token, old_capacity, old_step = decode(NUMBERS, stored)
        plain = old_gain == gain and old_token == args[limit + 2] and old_capacity == capacity
          and old_step == (args[limit + 5] == capacity and step or -step)
          and value <= capacity and value >= -MAX_UNITS and value % 1 == 0
          and ts <= MAX_UNITS and ts >= -MAX_UNITS and (ts - phase) % step == 0
      else
        plain = false
      end
    elseif limits[k] ~= limit or step > 1 and (ts - phase) % step ~= 0 then
      plain = false
    end
    if plain then
      value, ts = refresh(gain, capacity, step, value, ts, now)
      if value >= units then
        value = value - units
        changed[k] = changed[k] or units > 0 or args[limit + 5] ~= capacity
      elseif not raw[k] and args[limit + 5] ~= capacity then
        -- Refused, but used for the first time: it begins to fill now.
        changed[k] = true
      end
      values[k], tss[k] = value, ts
    end
  end

  if plain then
    for k = 1, buckets do
      if changed[k] then
        local limit = limits[k]
        store(k, values[k], tss[k], args[limit + 1], args[limit + 2], args[limit + 3], args[limit + 4], args[limit + 5])
      end
    end
    return { now, raw }
  end
end
