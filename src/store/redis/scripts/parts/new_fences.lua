-- Gives a lease other fences. Follows known_lease.lua.

-- Returns the name with a note of a ttl (in ms, as text), or without any note for nil.
local function with_ttl_note(name, ttl)
  return ttl and split_note(name) .. TTL_NOTE .. ttl or (split_note(name))
end

-- Writes down the holder's name of the lease of `token`, and its fences from `first` to `top`.
local function know(s, token, first, top, name, life)
  local last, _, whose, other = fences(s)
  local highest = math.max(last, top)
  if s.owner then
    note(s, highest, highest - first, token, name, life)
  else
    call('HSET', s.holders, token, encode_holder(first, name))
    note(s, highest, 0, whose or NO_TOKEN, other or '', life)
  end
end
