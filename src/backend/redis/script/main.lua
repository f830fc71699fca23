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
  store(k, grid, full, value, ts, gain[s], token[s], capacity[s], stored_as[s], initial[s])
end
return answer(initialized_at or false)
