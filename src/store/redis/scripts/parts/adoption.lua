-- The rules for leases that pass to other tokens. Follows rules.lua.
--[[include known_lease]]
--[[include new_fences]]

-- Returns the claim to the lease of `ticket`, or nil. A claim has the mark of its adopter, the
-- first seven digits of the ticket, and the UUID version 8. A claim is never a ticket, although
-- it begins with the same digits as its adopter's token, which may be the next ticket.
local function claimed(s, ticket)
  if sub(ticket, 15, 15) == '8' then return end
  local pattern = '^%x+%-' .. sub(ticket, 1, 4) .. '%-8' .. sub(ticket, 5, 7) .. '%-.+$'
  if s.owner then return match(s.owner, pattern) end
  for _, token in ipairs(s.count > 0 and call('ZRANGE', s.lock, 0, -1) or {}) do
    if match(token, pattern) then return token end
  end
end

-- Removes the places of repairs by these tokens. No client uses the former token of a lease that
-- moves, and the new token may have the lease at this node already.
local function forget_repairs(s, tokens)
  for _, token in ipairs(tokens) do
    local score = call('ZSCORE', s.queue, token)
    if score and tonumber(score) < 0 then forget(s.names, token) end
  end
end

-- Returns the answer of adopt.lua for a lease that has passed to another token.
local function inherited(s, first, last, name)
  local _, ttl = split_note(name)
  return { first, last, s.owner and 0 or 1, tonumber(ttl) or 0 }
end

-- Gives the lease of `token` to `adopter`.
local function pass(s, token, adopter)
  if s.owner then
    call('SET', s.lock, adopter, 'KEEPTTL')
    s.owner = adopter
  elseif token ~= adopter then
    call('ZADD', s.lock, call('ZSCORE', s.lock, token), adopter)
    call('ZREM', s.lock, token)
    call('HDEL', s.holders, token)
  end
end

-- Lets the lease of `token` live for `most` ms at most.
local function shorten(s, token, most)
  if s.owner then
    if call('PTTL', s.lock) > most then call('PEXPIRE', s.lock, most) end
  elseif tonumber(call('ZSCORE', s.lock, token)) > now_ms + most then
    call('ZADD', s.lock, now_ms + most, token)
    retime(s)
  end
end

-- Returns the ms for which the lease of `token` still lives.
local function left_of(s, token)
  if s.owner then return call('PTTL', s.lock) end
  return math.max(math.ceil(tonumber(call('ZSCORE', s.lock, token)) - now_ms), 0)
end

-- other: a lease of this token stays as it is. most: the ms after which the lease of `to` ends at
-- the latest, or 0.
function rules.move(lock, side, token, to, life, other, most)
  local s = look(lock, side)
  hand_on(s, nil)
  forget_repairs(s, { token, to, other })
  local stays = holds(s, other) and other or holds(s, to) and to
  local owner = stays or holds(s, token) and token
  if not owner then return claimed(s, token) or absence(s) end
  local first, last, name, handed = lease_of(s, owner)
  if not stays then
    if not s.owner then
      call('HSET', s.holders, to, encode_holder(first, name))
    elseif first or handed then
      local top, back = fences(s)
      note(s, top, back, handed and UNTOLD .. to or to, name, life)
    end
    pass(s, token, to)
  end
  local holder = stays or to
  if most > 0 and holder == to then shorten(s, to, most) end
  if not first then first, last = reserve((fences(s)), 1) end
  local answer = inherited(s, first, last, name)
  local _, _, granted = split_note(name)
  answer[5] = granted and granted < first and granted or first
  answer[6] = holder == other and -1 or left_of(s, holder)
  return answer
end

-- ask: ttl, life (of the fence), name, noted (whether the note limits the ttl), and fence (the one
-- that a quorum has decided on, or 0).
function rules.adopt(lock, side, token, adopter, ask)
  local s = look(lock, side)
  hand_on(s, nil)
  forget_repairs(s, { token, adopter })
  local owner = holds(s, adopter) and adopter or holds(s, token) and token
  if not owner then return absence(s) end
  local first, last, known = lease_of(s, owner)
  -- Keep the note, so that a repeated request gets the same answer.
  local _, noted = split_note(known)
  -- The adopter's ttl takes the place of the ticket's: see Source::ends_ticket.
  local ends_ticket = owner ~= adopter and ask.fence == 0
  prolong(s, owner, ask.noted and noted and math.min(ask.ttl, tonumber(noted)) or ask.ttl, ends_ticket)
  if ask.fence > 0 then
    first, last = ask.fence, math.max(last or 0, ask.fence)
  elseif not first then
    first, last = reserve((fences(s)), 1)
  end
  local name = with_ttl_note(ask.name, noted)
  -- Write the adopter's entry first: Redis deletes an empty hash of holders, and its end with it.
  know(s, adopter, first, last, name, ask.life)
  pass(s, owner, adopter)
  return inherited(s, first, last, name)
end
