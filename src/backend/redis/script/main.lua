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

for k, s in pairs(changed) do
  local value, ts = unpack(cells[k])
  local grid = expiry_grid(gain[s], capacity[s], stored_as[s])
  local full = full_at(gain[s], capacity[s], stored_as[s], value, ts)
  if initialized_at then
    -- A bucket that was reset is fuller than one that is not stored, until that is full as well.
    full = max(full, full_at(gain[s], capacity[s], stored_as[s], 0, initialized_at))
  end
  store(k, grid, full, value, ts, gain[s], token[s], capacity[s], stored_as[s], initial[s])
end
for k in pairs(marked) do
  local expires_at = format('%.0f', ceil((initialized_at + MARK_TIME) / 1000))
  call('SET', keys[k], pack(NUMBERS, 0, now, 1, MAX_UNITS, 0, 1), 'PXAT', expires_at)
end
return answer(initialized_at or false)
