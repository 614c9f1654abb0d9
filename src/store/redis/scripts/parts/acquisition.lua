-- The rule that grants leases, and queues the requests that it does not grant. Follows rules.lua.
--[[include known_lease]]

-- Returns -1 if the first lease in the way never ends, else -2 - the ms until it does.
local function in_the_way(s)
  if s.count > 0 then
    return -2 - math.max(tonumber(call('ZRANGE', s.lock, 0, 0, 'WITHSCORES')[2]) - now_ms, 0)
  end
  local left = call('PTTL', s.lock)
  return left == -1 and -1 or -2 - math.max(left, 0)
end

-- Returns the fence alone if no client waits.
local function with_queue(fence, waiting)
  return waiting > 0 and { fence, waiting } or fence
end

-- number: the number of the waiter's place, or nil if it does not wait.
-- ask: ttl, life (of the fence), name, most (0: exclusive), count (of fences), channel,
-- needs_replicas, and whether it repairs a lease.
function rules.acquire(lock, side, token, number, ask)
  local s = look(lock, side)
  if ask.repairs and call('EXISTS', s.names .. 'broken') == 1 then return -2 end
  -- A repaired lease is older than the places of all waiters.
  local held = holds(s, token)
  local is_next = ask.repairs and not held or hand_on(s, token)
  if held or is_next and fits(s, ask.most) then
    local last, back, whose = fences(s)
    local known = held and (whose == token and last - back)
    local handed = whose == UNTOLD .. token
    if held and not s.owner then
      local _
      known, _, handed = decode_holder(call('HGET', s.holders, token))
    end
    if held then prolong(s, token, ask.ttl, handed) end
    forget(s.names, token)
    if known and ask.count == 1 then
      -- The same request again, because its first answer was lost: the same lease.
      local left = call('PTTL', s.fence)
      if left >= 0 and left < ask.life then call('PEXPIRE', s.fence, format('%.0f', ask.life)) end
      return with_queue(known, call('ZCARD', s.queue))
    end
    local first, top = reserve(last, ask.count)
    local name, own = ask.name, first
    if held then
      local own_fence, _, known_name = lease_of(s, token)
      local _, noted = split_note(known_name)
      if noted then
        name, own = name .. TTL_NOTE .. noted, own_fence or first
      else
        local _, _, granted = split_note(known_name)
        name = with_granted(name, granted or own_fence, first)
      end
    end
    -- Write the fence first: a lease without a fence does not count.
    local waiting = note(s, top, top - own, token, name, ask.life)
    local shown = encode_holder(own, name)
    if not held and ask.most == 0 then
      call('SET', lock, token, 'PX', ask.ttl)
      s.owner = token
    elseif not held then
      share(s, token, now_ms + ask.ttl, shown)
    elseif not s.owner then
      call('HSET', s.holders, token, shown)
      retime(s)
    end
    -- The next waiter may fit, too.
    if not s.owner and waiting > 0 then
      hand_on(s, nil)
      waiting = call('ZCARD', s.queue)
    end
    return with_queue(first, waiting)
  end

  local answer = in_the_way(s)
  if not number and not ask.repairs then return answer end
  local ahead = call('ZRANK', s.queue, token)
  local life, channel = WAITER_LIFE, ask.channel
  if ask.repairs then
    local first = tonumber(call('ZRANGE', s.queue, 0, 0, 'WITHSCORES')[2]) or 0
    call('ZADD', s.queue, math.min(first, 0) - 1, token)
    ahead, number, life, channel = 0, 0, ask.ttl, NO_CHANNEL
  elseif ahead and tonumber(call('ZSCORE', s.queue, token)) < 0 then
    -- A late poll must not turn the place of a repair into that of a waiter.
    return { answer, ahead, sub(s.owner or '', 1, 8) }
  elseif not ahead then
    local last = tonumber(call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')[2]) or 0
    call('ZADD', s.queue, math.max(last + 1, now_us), token)
    ahead = call('ZCARD', s.queue) - 1
  end
  call('ZADD', s.alive, now_ms + life, token)
  local grant = math.min(ask.ttl, GRANT_TTL)
  if ask.needs_replicas and channel ~= NO_CHANNEL then channel = channel .. NEEDS_REPLICAS end
  call('HSET', s.waiters, token, encode_waiter(ask.most, number, grant, channel, ask.name))
  if call('PTTL', s.queue) < life then
    for _, key in ipairs({ s.queue, s.alive, s.waiters }) do call('PEXPIRE', key, life + WAITER_LIFE) end
  end
  local text = call('GET', s.fence)
  if not text then
    call('SET', s.fence, QUEUED, 'PX', FENCE_LIFE)
  elseif sub(text, 1, 1) ~= QUEUED then
    call('SET', s.fence, QUEUED .. text, 'KEEPTTL')
  end
  return { answer, ahead, sub(s.owner or '', 1, 8) }
end
