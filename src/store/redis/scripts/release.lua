-- Ends leases, and places in the queue. If a token is empty or *, ends every lease of the lock.
-- After a *, the lock is not repaired for a while. KEYS: the locks, then their queues, or, for a
-- single lock, its fence key; ARGV: a token for each lock.
-- Answers one value for each: 1 if the token held the lock, 0 if no token did, -1 if another token
-- does; or the server's error.
--
-- As long as nobody waits, a lease that is ended is a key that is deleted. MGET and not GET, because to it what is no
-- string is nothing: the rules look closer at whatever does not belong to the token. A lock by itself comes with its fence
-- key, because while a slot moves to another node a script may only be given keys that are there, and a lock that is held
-- has no queue as a rule, but always a fence.
local GRANT_FENCES = 64
local KEYS, ARGV, call = KEYS, ARGV, redis.pcall
local count = #KEYS / 2
local rules

local function by_rules(i)
  if not rules then
    local time = redis.call('TIME')
    rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
  end
  local done, answer = pcall(rules.release, KEYS[i], KEYS[count + i], ARGV[i])
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  return answer
end

-- Hands the lock on as the rules do, in the common case: nobody has lost its place, and the first wants the lock for
-- itself and listens. The rules are not made for that, because it takes as long as all else together while the next
-- holder waits for its word. Whether it was done; if not, nothing has changed.
local function hand_on(lock, queue, token, head, last)
  local side, sub = string.sub(queue, 1, -6), string.sub
  local time = redis.call('TIME')
  local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
  -- The clock gives the fence, and 16 digits compare like the numbers. Whoever was told has its token there, and no
  -- place in the queue any more.
  if sub(last, 2, 17) >= now or string.match(last, '^q%d+%-?%d* (%S+) ') ~= token then return false end
  local first_end = call('ZRANGE', side .. 'alive', 0, 0, 'WITHSCORES')[2]
  if not first_end or tonumber(first_end) <= tonumber(sub(now, 1, 13)) then return false end
  local waiter = call('HGET', side .. 'waiters', head)
  if type(waiter) ~= 'string' then return false end
  local number, grant, channel, name = string.match(waiter, '^0 (%d+) (%d+) ([^-!]%S*[^?%s]) (.*)$')
  local sharded = channel and string.find(channel, '{', 1, true)
  local listeners = channel and call('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', channel)[2]
  if not listeners or listeners == 0 then return false end
  local fences = string.format('q%016.0f-%d ', now + GRANT_FENCES - 1, GRANT_FENCES - 1)
  if call('SET', side .. 'fence', fences .. head .. ' ' .. name, 'KEEPTTL').err then return false end
  call('SET', lock, head, 'PX', grant)
  call(sharded and 'SPUBLISH' or 'PUBLISH', channel, number .. ' ' .. now)
  call('ZREM', queue, head)
  call('ZREM', side .. 'alive', head)
  call('HDEL', side .. 'waiters', head)
  return true
end

-- One by itself goes without the tables that many share.
if count == 1 then
  local lock, token = KEYS[1], ARGV[1]
  local known = call('MGET', lock, KEYS[2])
  if known[1] == token then
    local last = known[2]
    if last and string.sub(last, 1, 1) ~= 'q' then return { call('DEL', lock) } end
    local queue = string.sub(KEYS[2], 1, -6) .. 'queue'
    local head = call('ZRANGE', queue, 0, 0)
    if not head.err and not head[1] then return { call('DEL', lock) } end
    if last and head[1] and hand_on(lock, queue, token, head[1], last) then return { 1 } end
  end
  return { by_rules(1) }
end

local owners = call('MGET', unpack(KEYS, 1, count))
if owners.err then return owners end
local queued = call('EXISTS', unpack(KEYS, count + 1)) ~= 0
local answers, ended, places, held, other, others = {}, {}, {}, 0, {}, 0
for i = 1, count do
  if owners[i] ~= ARGV[i] or queued and call('EXISTS', KEYS[count + i]) ~= 0 then
    others = others + 1
    other[others] = i
  else
    held = held + 1
    ended[held], places[held] = KEYS[i], i
    answers[i] = 1
  end
end

local gone = {}
if others > 0 then
  -- Requests on one lock keep their order.
  for i = 1, count do
    if gone[KEYS[i]] then
      for j = 1, count do answers[j] = by_rules(j) end
      return answers
    end
    gone[KEYS[i]] = true
  end
  for _, i in ipairs(other) do answers[i] = by_rules(i) end
  if held == 0 then return answers end
end

local deleted = call('DEL', unpack(ended))
if deleted == held then return answers end
-- The same release twice, or a server that refuses.
gone = {}
for _, i in ipairs(places) do
  if type(deleted) == 'table' then
    answers[i] = deleted
  elseif gone[KEYS[i]] then
    answers[i] = 0
  end
  gone[KEYS[i]] = true
end
return answers
