-- Carries out the operations in their order, and stores what they changed.

local at = args[2] * 5 + 4
for _ = 1, args[at - 1] do
  at = operations[args[at]](at)
end

for k, s in pairs(changed) do
  local value, ts = unpack(cells[k])
  store(k, value, ts, gain[s], token[s], capacity[s], step[s], initial[s])
end
return { now, raw }
