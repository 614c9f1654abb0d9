-- The rule that detaches leases. Follows rules.lua.
--[[include known_lease]]
--[[include new_fences]]

-- fence, own_ttl: the fence and the ttl in ms that the adopter of the lease gets.
function rules.detach(lock, side, token, ttl, life, fence, own_ttl)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  local first, last, name, handed = lease_of(s, token)
  local _, _, granted = split_note(name)
  -- The lease is newer than the detachment, or no client has taken it up.
  if handed or fence < (granted or first or 0) then return -1 end
  prolong(s, token, ttl)
  know(s, token, fence, math.max(last or 0, fence), with_ttl_note(name, own_ttl), life)
  return 1
end
