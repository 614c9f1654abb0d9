-- Notes behind the NAME of a holder: U+001F and
--   its ttl in ms               of a detached lease
--   a g and its granted fence   of a lease whose fence was replaced by a larger one; see
--                               store/adopted_lease.rs
-- An earlier version puts the note of the ttl behind the other note.
local TTL_NOTE, FENCE_NOTE = '\31', '\31g'

-- Returns the name without any note, the ttl in its note (in ms, as text), and the fence in it.
local function split_note(name)
  local bare, kind, number = match(name or '', '^(.*)\31(g?)(%d+)$')
  if not bare then return name or '' end
  if kind == 'g' then return bare, nil, tonumber(number) end
  return match(bare, '^(.*)\31g%d+$') or bare, number
end

-- Returns the name of a lease whose own fence becomes `first`, with the note that it needs then.
local function with_granted(name, own, first)
  local bare, _, granted = split_note(name)
  granted = granted or own
  return granted and granted < first and bare .. FENCE_NOTE .. format('%.0f', granted) or bare
end
