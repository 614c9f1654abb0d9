-- Reads and writes what the server knows of a lease, in addition to its token. Follows rules.lua.
--[[include name_notes]]

-- Writes down the fences and the name of a lease, as `fences` returns them. Lets them live for at
-- least `life` ms, and for no shorter time than before. Returns the number of waiters.
local function note(s, last, back, whose, name, life)
  local before, waiting = back > 0 and format('%.0f', back) or '0', call('ZCARD', s.queue)
  local text = encode_fences(format(DIGITS, last), before, whose, name)
  if waiting > 0 then text = QUEUED .. text end
  -- A fence that is ahead of the clock lasts until the clock has caught up.
  life = math.max(life + math.max(math.ceil((last - now_us) / 1000), 0), call('PTTL', s.fence))
  call('SET', s.fence, text, 'PX', format('%.0f', life))
  return waiting
end

-- Lets the lease of `token` live for at least `ttl` ms. If the lease was only `handed` to the
-- token, it had GRANT_TTL and now gets exactly `ttl`. So does a lease that passes from its ticket
-- to an adopter. Always writes: a WAIT behind this must not end before replicas have the lease,
-- even if another connection wrote the lease.
local function prolong(s, token, ttl, handed)
  if s.owner then
    call('PEXPIRE', s.lock, handed and ttl or math.max(ttl, call('PTTL', s.lock)))
  else
    if handed or tonumber(call('ZSCORE', s.lock, token)) < now_ms + ttl then
      call('ZADD', s.lock, now_ms + ttl, token)
    end
    retime(s)
  end
end

-- Returns what the server knows of the lease of `token`: its first and last fence (nil for none),
-- its holder's name as it is written, and whether the lease was handed over and is not taken up.
local function lease_of(s, token)
  if s.owner then
    local last, back, whose, name = fences(s)
    if whose == token then return last - back, last, name, false end
    if whose == UNTOLD .. token then return nil, nil, name, true end
    return nil, nil, '', false
  end
  local fence, name, handed = decode_holder(call('HGET', s.holders, token))
  return fence, fence, name or '', handed
end
