-- The rules for leases that are detached, and that pass to other tokens. The client adds them to
-- the rules in the scripts that need them.

local function with_note(name, ttl)
  return ttl and split_note(name) .. '\31' .. ttl or (split_note(name))
end

-- Returns the claim to the lease of `ticket`, or nil. A claim has the mark of its heir, the first
-- seven digits of the ticket, and the UUID version 8.
local function claimed(s, ticket)
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
    if score and tonumber(score) < 0 then forget(s, token) end
  end
end

-- Returns the answer of adopt.lua for a lease that has passed to another token.
local function inherited(s, first, last, name)
  local _, ttl = split_note(name)
  return { first, last, s.owner and 0 or 1, tonumber(ttl) or 0 }
end

-- fence, own_ttl: the fence and the ttl in ms that the heir of the lease gets.
function rules.detach(lock, side, token, ttl, life, fence, own_ttl)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  prolong(s, token, ttl)
  local _, last, name = lease_of(s, token)
  know(s, token, fence, math.max(last or 0, fence), with_note(name, own_ttl), life)
  return 1
end

-- Gives the lease of `token` to `heir`.
local function pass(s, token, heir)
  if s.owner then
    call('SET', s.lock, heir, 'KEEPTTL')
    s.owner = heir
  elseif token ~= heir then
    call('ZADD', s.lock, call('ZSCORE', s.lock, token), heir)
    call('ZREM', s.lock, token)
    call('HDEL', s.holders, token)
  end
end

-- other: a lease of this token stays as it is.
function rules.move(lock, side, token, to, life, other)
  local s = look(lock, side)
  hand_on(s, nil)
  forget_repairs(s, { token, to, other })
  local stays = holds(s, other) and other or holds(s, to) and to
  local owner = stays or holds(s, token) and token
  if not owner then return claimed(s, token) or absence(s) end
  local first, last, name, mark = lease_of(s, owner)
  if not stays then
    if not s.owner then
      call('HSET', s.holders, to, (first and format('%.0f', first) or '-') .. ' ' .. name)
    elseif first or mark == '-' then
      local top, back = fences(s)
      note(s, top, back, mark .. to, name, life)
    end
    pass(s, token, to)
  end
  if not first then first, last = reserve((fences(s)), 1) end
  return inherited(s, first, last, name)
end

-- ask: ttl, life (of the fence), name, noted (whether the note limits the ttl), and fence (the one
-- that a quorum has decided on, or 0).
function rules.adopt(lock, side, token, heir, ask)
  local s = look(lock, side)
  hand_on(s, nil)
  forget_repairs(s, { token, heir })
  local owner = holds(s, heir) and heir or holds(s, token) and token
  if not owner then return absence(s) end
  local first, last, known = lease_of(s, owner)
  -- Keep the note, so that a repeated request gets the same answer.
  local _, noted = split_note(known)
  -- The heir's ttl takes the place of the ticket's: see Source::ends_ticket.
  local ends_ticket = owner ~= heir and ask.fence == 0
  prolong(s, owner, ask.noted and noted and math.min(ask.ttl, tonumber(noted)) or ask.ttl, ends_ticket)
  if ask.fence > 0 then
    first, last = ask.fence, math.max(last or 0, ask.fence)
  elseif not first then
    first, last = reserve((fences(s)), 1)
  end
  local name = with_note(ask.name, noted)
  -- Write the heir's entry first: Redis deletes an empty hash of holders, and its end with it.
  know(s, heir, first, last, name, ask.life)
  pass(s, owner, heir)
  return inherited(s, first, last, name)
end
