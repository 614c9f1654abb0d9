-- The rule that ends leases, and removes waiters from the queue. Follows rules.lua.

-- No client has an empty token or a *. They stand for all holders of the lock, and break it. A *
-- also keeps the lock from being repaired for BROKEN_LIFE.
function rules.release(lock, side, token)
  local s = look(lock, side)
  local all = token == '' or token == '*'
  if token == '*' then call('SET', s.names .. 'broken', '', 'PX', BROKEN_LIFE) end
  local held = all and absence(s) ~= 0 or not all and holds(s, token)
  forget(s.names, token)
  if all then
    -- The broken lease must not come back.
    for _, repair in ipairs(call('ZRANGEBYSCORE', s.queue, '-inf', '(0')) do forget(s.names, repair) end
    call('DEL', lock, s.holders)
    s.owner, s.count = false, 0
  elseif s.owner == token then
    s.owner = false
  elseif held then
    call('ZREM', lock, token)
    call('HDEL', s.holders, token)
    s.count = s.count - 1
    retime(s)
  end
  local _, problem = pcall(hand_on, s, nil, held)
  if held then
    -- The lease has ended, even if the lock can't be handed on.
    if absence(s) == 0 then call('DEL', lock) end
    return 1
  end
  if type(problem) ~= 'boolean' then error(problem, 0) end
  return all and 0 or absence(s)
end
