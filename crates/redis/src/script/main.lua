-- Runs the operations, and stores what they have changed.

if rest then
  for k, at in pairs(rest) do
    for i = at + 3, at + 2 + args[at + 2] do
      take(k, args[at], args[at + 1], args[i])
    end
  end
else
  local at = args[2] * 5 + 4
  for _ = 1, args[at - 1] do
    at = operations[args[at]](at)
  end
end

for k in pairs(changed) do
  local value, ts, own_gain, own_token, own_capacity, own_step = unpack(cells[k])
  local begins_full = own_step > 0
  own_step = math.abs(own_step)
  local grid = expiry_grid(own_gain, own_capacity, own_step)
  local full = full_at(own_gain, own_capacity, own_step, value, ts)
  if initialized_at then
    -- A bucket that was reset is fuller than one that is not stored, until that is full as well.
    full = max(full, full_at(own_gain, own_capacity, own_step, 0, initialized_at))
  end
  local own_initial = begins_full and own_capacity or own_capacity - 1
  store(k, grid, full, value, ts, own_gain, own_token, own_capacity, own_step, own_initial)
end
for k in pairs(marked) do
  local expires_at = format('%.0f', ceil((initialized_at + MARK_TIME) / 1000))
  call('SET', keys[k], pack(NUMBERS, 0, now, 1, MAX_UNITS, 0, 1), 'PXAT', expires_at)
end
return answer(initialized_at or false)
