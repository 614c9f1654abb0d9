-- The rule that gives a lease the fences that a quorum decided on. Follows rules.lua.
--[[include known_lease]]
--[[include new_fences]]

-- top: the last of the lease's fences; back: how many there are before it. A detached lease keeps
-- its own fence, and only its last fence grows: see store/adopted_lease.rs.
function rules.accept(lock, side, token, top, back, life)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  local own, last, name = lease_of(s, token)
  local _, noted = split_note(name)
  local first = noted and own or top - back
  know(s, token, first, math.max(last or 0, top), noted and name or with_granted(name, own, first), life)
  return 1
end
