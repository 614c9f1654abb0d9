-- The rule that describes a lock. The client adds it to the rules in the script that needs it.

-- Returns false if the lock is free; else whether the leases are shared, then the leases and the
-- waiters. A lease: the ms until it ends (-1: never), and, unless another library holds the lock,
-- the holder's name, the fence (0 for none yet), and the first 8 digits of the token. A waiter: the
-- µs for which it has been waiting, MOST, and its name.
function rules.inspect(lock, side)
  local s = look(lock, side)
  if absence(s) == 0 then return false end
  local leases, waiters = {}, {}
  if s.owner then
    local last, back, whose, name = fences(s)
    local left = call('PTTL', lock)
    if whose == s.owner then
      leases[1] = { left, (split_note(name)), last - back, sub(s.owner, 1, 8) }
    elseif whose == '-' .. s.owner then
      leases[1] = { left, (split_note(name)), 0, sub(s.owner, 1, 8) }
    else
      leases[1] = { left }
    end
  else
    local held = call('ZRANGE', lock, 0, -1, 'WITHSCORES')
    for i = 1, #held, 2 do
      local fence, name = match(call('HGET', s.holders, held[i]) or '', '^(%S+) (.*)$')
      local left = tonumber(held[i + 1]) - now_ms
      leases[#leases + 1] = { left, name and split_note(name), tonumber(fence) or 0, sub(held[i], 1, 8) }
    end
  end
  local queue = call('ZRANGEBYSCORE', s.queue, 0, '+inf', 'WITHSCORES')
  for i = 1, #queue, 2 do
    local most, name = match(call('HGET', s.waiters, queue[i]) or '', '^(%d+) %d+ %d+ %S+ (.*)$')
    waiters[#waiters + 1] = { math.max(now_us - tonumber(queue[i + 1]), 0), most, name }
  end
  return { s.count > 0 and 1 or 0, leases, waiters }
end
