-- The rule that prolongs leases. Follows rules.lua.
--[[include known_lease]]

function rules.renew(lock, side, token, ttl, life, count)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  prolong(s, token, ttl)
  local left = call('PTTL', s.fence)
  if left >= 0 and left < life then call('PEXPIRE', s.fence, format('%.0f', life)) end
  if count == 0 then return 1 end
  local last, back, whose, name = fences(s)
  local first, top = reserve(last, count)
  return { first, note(s, top, back + top - last, whose or NO_TOKEN, name or '', life) }
end
