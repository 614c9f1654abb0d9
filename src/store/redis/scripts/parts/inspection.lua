-- The rule that describes a lock. Follows rules.lua.
--[[include name_notes]]

-- Returns false if the lock is free. Otherwise returns 1 if the leases are shared and else 0, a
-- list of leases, and a list of waiters.
--   lease   the ms until it ends (-1: never); unless another library holds the lock, also the
--           holder's name, the fence (0 for none yet), and the first 8 digits of the token
--   waiter  the µs for which it has been waiting, MOST, and its name
function rules.inspect(lock, side)
  local s = look(lock, side)
  if absence(s) == 0 then return false end
  local leases, waiters = {}, {}
  if s.owner then
    local last, back, whose, name = fences(s)
    local left = call('PTTL', lock)
    if whose == s.owner then
      leases[1] = { left, (split_note(name)), last - back, sub(s.owner, 1, 8) }
    elseif whose == UNTOLD .. s.owner then
      leases[1] = { left, (split_note(name)), 0, sub(s.owner, 1, 8) }
    else
      leases[1] = { left }
    end
  else
    local held = call('ZRANGE', lock, 0, -1, 'WITHSCORES')
    for i = 1, #held, 2 do
      local fence, name = decode_holder(call('HGET', s.holders, held[i]))
      local left = tonumber(held[i + 1]) - now_ms
      leases[#leases + 1] = { left, name and split_note(name), fence or 0, sub(held[i], 1, 8) }
    end
  end
  local queue = call('ZRANGEBYSCORE', s.queue, 0, '+inf', 'WITHSCORES')
  for i = 1, #queue, 2 do
    local most, _, _, _, name = decode_waiter(call('HGET', s.waiters, queue[i]) or '')
    waiters[#waiters + 1] = { math.max(now_us - tonumber(queue[i + 1]), 0), most, name }
  end
  return { s.count > 0 and 1 or 0, leases, waiters }
end
