-- The rules of the store contract for one lock: what store/rules.rs says, on the server's keys. Made part of each
-- script that needs them where `--[[rules]]` stands: a function of the server's time in µs. Some scripts have
-- adoption.lua at its end, too.
--
-- A lock is up to six keys in one slot. Only the first two are handed in; the others have the names of the second but
-- for its last word, and there is none of them while nobody waits and nothing is shared.
--   lock      a string, the holder's token; or, of shared leases, a sorted set of their tokens by when they end (ms)
--   :fence    "LAST TOKEN NAME": the last fence that was given away, to whom, and the holder's name. LAST-N if that
--             was the last of N + 1. -TOKEN if the lease is kept for it, without a fence, although it could not be
--             told. A q in front: there may be a queue. It spares those who do not see it from asking whether there is.
--             The NAME of a detached lease ends with its note: U+001F and its own ttl in ms.
--   :queue    a sorted set of the tokens that wait, by when they came (µs; no two the same). A token that repairs a
--             lease of a quorum has a negative score, so it is before all others
--   :alive    the same tokens, by when they lose their place unless they are heard of (ms)
--   :waiters  a hash of the same: "MOST NUMBER GRANT CHANNEL NAME", MOST being 0 for an exclusive lease, GRANT the ms for
--             which it is handed one, CHANNEL - for none and ! for one that led nowhere; with a ? at its end for who is not
--             to be told a fence
--   :broken   there for BROKEN_LIFE after the lock was broken, if the server is a node of a quorum
--   :holders  a hash of the shared leases' tokens: "FENCE NAME", FENCE being - until it is taken up. A sorted set whose
--             members are not here is not a lock, unless they are tokens and there is a fence
-- What is published to a waiter is its NUMBER, or, if it has an exclusive lease, "NUMBER FENCE"; to a CHANNEL with a {tag},
-- which is one of this node of a cluster, as SPUBLISH does, which does not tell all other nodes.
-- All end by themselves; those of the queue within twice the time for which a waiter keeps its place, so that not every
-- word from one has to prolong them. Errors are thrown, so whoever calls a rule does it by pcall.
local call = redis.call
local match, format, sub = string.match, string.format, string.sub
local FENCE_LIFE, GRANT_TTL, WAITER_LIFE = 3600000, 1500, 2500
local DOUBT_TTL, GRANT_FENCES = 200, 64
local BROKEN_LIFE = 120000
-- 2^53 - 1: Lua and JavaScript count no further.
local MOST_FENCES = 9007199254740991
local now_ms = math.floor(now_us / 1000)
local rules = {}

-- Forgets one who waits.
local function forget(s, token)
  if call('ZREM', s.queue, token) == 1 then
    call('ZREM', s.alive, token)
    call('HDEL', s.waiters, token)
  end
end

-- What is known of the fences: the last, how many before it the one of the lease is, whose it is, and its holder's name.
local function fences(s)
  local text = call('GET', s.fence) or ''
  local last, back, whose, name = match(text, '^q?(%d+)%-?(%d*) (%S+) ?(.*)$')
  last = tonumber(last or match(text, '^q?(%d+)')) or 0
  return math.min(last, MOST_FENCES), tonumber(back) or 0, whose, name
end

local function text_of(last, back, whose, name)
  local text = format('%016.0f', last)
  if back > 0 then text = text .. format('-%.0f', back) end
  return text .. ' ' .. whose .. ' ' .. name
end

-- Writes that down, and lets it live for `life` ms, and no shorter than before. How many wait.
local function note(s, last, back, whose, name, life)
  local text, waiting = text_of(last, back, whose, name), call('ZCARD', s.queue)
  if waiting > 0 then text = 'q' .. text end
  -- One that is ahead of the clock lasts until the clock has caught up.
  life = math.max(life + math.max(math.ceil((last - now_us) / 1000), 0), call('PTTL', s.fence))
  call('SET', s.fence, text, 'PX', format('%.0f', life))
  return waiting
end

-- Reserves fences: the first of them, larger than all before, and the last.
local function reserve(last, count)
  local first = math.min(math.max(now_us, last + 1), MOST_FENCES)
  return first, math.min(first + count - 1, MOST_FENCES)
end

-- Grants the lock to one who waits, for `ttl` ms. `whose`: its token as the fence key is to say it; `back`: how many fences
-- it has beside the first.
local function hand(s, token, ttl, last, back, whose, name)
  -- The fence comes first: what is told must have been written.
  local text = 'q' .. text_of(last, back, whose, name)
  if not call('SET', s.fence, text, 'KEEPTTL', 'XX') then call('SET', s.fence, text, 'PX', FENCE_LIFE) end
  call('SET', s.lock, token, 'PX', ttl)
  s.owner = token
end

-- Lets the keys of shared leases live as long as the last of them.
local function retime(s)
  local ends = call('ZRANGE', s.lock, -1, -1, 'WITHSCORES')[2]
  if ends then
    call('PEXPIREAT', s.lock, ends)
    call('PEXPIREAT', s.holders, ends)
  end
end

local function share(s, token, ends, known)
  -- What is left of leases that ended.
  if s.count == 0 then call('DEL', s.lock, s.holders) end
  -- Write the holder first: a token without a holder does not count as a lease.
  call('HSET', s.holders, token, known)
  call('ZADD', s.lock, ends, token)
  s.count = s.count + 1
  retime(s)
end

local function fits(s, most)
  return not s.owner and (s.count == 0 or s.count < most)
end

local function holds(s, token)
  return s.owner == token or s.count > 0 and call('ZSCORE', s.lock, token)
end

-- Whether a channel is one of this node of a cluster.
local function is_sharded(channel)
  return string.find(channel, '{', 1, true)
end

-- How many took it here; or the server's error. A channel whose slot is on another node, because one of the two slots has
-- moved since, leads nowhere.
local function publish(channel, words)
  if not is_sharded(channel) then return redis.pcall('PUBLISH', channel, words) end
  local told = redis.pcall('SPUBLISH', channel, words)
  return type(told) == 'table' and string.find(told.err, 'non local', 1, true) and 0 or told
end

-- Tells the waiter at that place to look, if there is one, and it can be told.
local function tell(s, place)
  local token = call('ZRANGE', s.queue, place, place)[1]
  local number, channel = match(token and call('HGET', s.waiters, token) or '', '^%d+ (%d+) %d+ (%S+) ')
  if number then publish(channel, number) end
end

-- Whether somebody listens on that channel here: a fence is told to nobody else. What is published and reaches nobody
-- here may yet reach a replica's clients, one of which may be the waiter, who will not have the lease.
local function is_there(channel)
  if channel == '-' or channel == '!' or string.sub(channel, -1) == '?' then return false end
  -- Who may not ask does not know.
  local listeners = redis.pcall('PUBSUB', is_sharded(channel) and 'SHARDNUMSUB' or 'NUMSUB', channel)[2]
  return listeners and listeners > 0
end

-- Grants to those in front, as long as they fit, and tells them. Stops at `but`, who is asking. Whether nobody is left
-- who goes before `but`, or before one who comes now.
--
-- One whose connection is gone is left where it is, for its process is most likely gone, too. Unless `trust`: then it may
-- be on its way back, and an exclusive lease is kept for it, once and only for DOUBT_TTL; the next in the queue is told,
-- because nobody else may see when that is over.
local function hand_on(s, but, trust)
  local place = 0
  while not s.owner do
    local token, score = unpack(call('ZRANGE', s.queue, place, place, 'WITHSCORES'))
    if not token or token == but then return true end
    local most, number, grant, channel, name =
      match(call('HGET', s.waiters, token) or '0 0 ' .. GRANT_TTL .. ' - ', '^(%d+) (%d+) (%d+) (%S+) (.*)$')
    if not fits(s, tonumber(most)) then return false end
    local exclusive = most == '0'
    -- A repair gets the lease until its place would end.
    local left = tonumber(score) < 0 and math.max(tonumber(call('ZSCORE', s.alive, token) or 0) - now_ms, 1)
    local there = exclusive and is_there(channel)
    -- Who may not publish still hands on: whoever waits looks by itself.
    local told = there or channel ~= '-' and (channel == '!' and 0 or publish(channel, number))
    if told ~= 0 and exclusive then
      local fence, last = reserve((fences(s)), GRANT_FENCES)
      hand(s, token, left or grant, last, last - fence, token, name)
      if there then publish(channel, number .. format(' %016.0f', fence)) end
      forget(s, token)
    elseif told ~= 0 then
      share(s, token, now_ms + (left or GRANT_TTL), '- ' .. name)
      forget(s, token)
    elseif trust and exclusive and channel ~= '!' then
      hand(s, token, DOUBT_TTL, (fences(s)), 0, '-' .. token, name)
      call('HSET', s.waiters, token, most .. ' ' .. number .. ' ' .. grant .. ' ! ' .. name)
      tell(s, place + 1)
    else
      place = place + 1
    end
  end
  return false
end

-- Returns whether a member of a sorted set is the token of a lease. A server that is short of
-- memory may have dropped the holders and kept the fence.
local function is_lease(s, token)
  if call('HGET', s.holders, token) then return true end
  return match(token, '^%x+%-%x+%-%x+%-%x+%-%x+$') and match(call('GET', s.fence) or '', '^q?%d')
end

-- The lock without what has run out. Always writes: a read-only replica must refuse, rather than tell by its old data.
local function look(lock, side)
  local names = sub(side, 1, -6)
  local s = {
    lock = lock,
    fence = names .. 'fence',
    queue = names .. 'queue',
    alive = names .. 'alive',
    waiters = names .. 'waiters',
    holders = names .. 'holders',
    broken = names .. 'broken',
    count = 0,
  }
  if call('TYPE', lock).ok == 'zset' then
    local ended = call('ZRANGEBYSCORE', lock, '-inf', now_ms)
    -- A sorted set whose members are not leases belongs to another application: no rule changes it.
    -- If no member has to be removed, checking one member is enough.
    for _, token in ipairs(ended[1] and ended or call('ZRANGE', lock, 0, 0)) do
      if not is_lease(s, token) then error({ err = 'WRONGTYPE no lock' }, 0) end
    end
    call('ZREMRANGEBYSCORE', lock, '-inf', now_ms)
    for _, token in ipairs(ended) do call('HDEL', s.holders, token) end
    s.count = call('ZCARD', lock)
  else
    s.owner = call('GETEX', lock)
  end
  for _, token in ipairs(call('ZRANGEBYSCORE', s.alive, '-inf', now_ms)) do forget(s, token) end
  return s
end

-- Lets the lease of `token` live for at least `ttl` ms. If the lease was only `handed` to the
-- token, it had GRANT_TTL and now gets exactly `ttl`. So does a lease that passes from its ticket
-- to an heir. Always writes: a WAIT behind this must not end before replicas have the lease, even
-- if another connection wrote the lease.
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

-- -1 when the first lease in the way never ends, else -2 - the ms until it does.
local function in_the_way(s)
  if s.count > 0 then
    return -2 - math.max(tonumber(call('ZRANGE', s.lock, 0, 0, 'WITHSCORES')[2]) - now_ms, 0)
  end
  local left = call('PTTL', s.lock)
  return left == -1 and -1 or -2 - math.max(left, 0)
end

local function absence(s)
  return (s.owner or s.count > 0) and -1 or 0
end

-- The fence is the whole answer if nobody waits.
local function with_queue(fence, waiting)
  return waiting > 0 and { fence, waiting } or fence
end

-- Returns the name without the note of a detached lease, and the note: its ttl in ms, as text.
local function split_note(name)
  local bare, ttl = match(name or '', '^(.*)\31(%d+)$')
  return bare or name or '', ttl
end

-- Returns what the server knows of the lease of `token`: its first and last fence (nil for none),
-- its holder's name as it is written, and a - if a handed lease is not taken up yet.
local function lease_of(s, token)
  if s.owner then
    local last, back, whose, name = fences(s)
    if whose == token then return last - back, last, name, '' end
    if whose == '-' .. token then return nil, nil, name, '-' end
    return nil, nil, '', ''
  end
  local fence, name = match(call('HGET', s.holders, token) or '', '^(%S+) ?(.*)$')
  return tonumber(fence), tonumber(fence), name or '', fence == '-' and '-' or ''
end

-- ask: ttl, life (of the fence), name, most (0: exclusive), count (of fences), channel, and whether
-- it repairs a lease.
function rules.acquire(lock, side, token, number, ask)
  local s = look(lock, side)
  if ask.repairs and call('EXISTS', s.broken) == 1 then return -2 end
  -- A repaired lease is older than the places of all waiters.
  local held = holds(s, token)
  local is_next = ask.repairs and not held or hand_on(s, token)
  if held or is_next and fits(s, ask.most) then
    local last, back, whose = fences(s)
    local known = held and (whose == token and last - back)
    local handed = whose == '-' .. token
    if held and not s.owner then
      local holder = call('HGET', s.holders, token) or ''
      known, handed = tonumber(match(holder, '^%d+')), sub(holder, 1, 1) == '-'
    end
    if held then prolong(s, token, ask.ttl, handed) end
    forget(s, token)
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
      if noted then name, own = name .. '\31' .. noted, own_fence or first end
    end
    -- A lease without a fence is none: the fence comes first.
    local waiting = note(s, top, top - own, token, name, ask.life)
    local shown = format('%.0f', own) .. ' ' .. name
    if not held and ask.most == 0 then
      call('SET', lock, token, 'PX', ask.ttl)
      s.owner = token
    elseif not held then
      share(s, token, now_ms + ask.ttl, shown)
    elseif not s.owner then
      call('HSET', s.holders, token, shown)
      retime(s)
    end
    -- Whoever is next may fit, too.
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
    ahead, number, life, channel = 0, 0, ask.ttl, '-'
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
  local known = ask.most .. ' ' .. number .. ' ' .. grant .. ' ' .. channel .. ' ' .. ask.name
  call('HSET', s.waiters, token, known)
  if call('PTTL', s.queue) < life then
    for _, key in ipairs({ s.queue, s.alive, s.waiters }) do call('PEXPIRE', key, life + WAITER_LIFE) end
  end
  local text = call('GET', s.fence)
  if not text then
    call('SET', s.fence, 'q', 'PX', FENCE_LIFE)
  elseif sub(text, 1, 1) ~= 'q' then
    call('SET', s.fence, 'q' .. text, 'KEEPTTL')
  end
  return { answer, ahead, sub(s.owner or '', 1, 8) }
end

function rules.renew(lock, side, token, ttl, life, count)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  prolong(s, token, ttl)
  local left = call('PTTL', s.fence)
  if left >= 0 and left < life then call('PEXPIRE', s.fence, format('%.0f', life)) end
  if count == 0 then return 1 end
  local last, back, whose, name = fences(s)
  local first, top = reserve(last, count)
  return { first, note(s, top, back + top - last, whose or '-', name or '', life) }
end

-- No client has an empty token or a *. They stand for all holders of the lock, and break it. A *
-- also keeps the lock from being repaired for BROKEN_LIFE.
function rules.release(lock, side, token)
  local s = look(lock, side)
  local all = token == '' or token == '*'
  if token == '*' then call('SET', s.broken, '', 'PX', BROKEN_LIFE) end
  local held = all and absence(s) ~= 0 or not all and holds(s, token)
  forget(s, token)
  if all then
    -- The broken lease must not come back.
    for _, repair in ipairs(call('ZRANGEBYSCORE', s.queue, '-inf', '(0')) do forget(s, repair) end
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
    -- What ended is ended, even if it can't be handed on.
    if absence(s) == 0 then call('DEL', lock) end
    return 1
  end
  if type(problem) ~= 'boolean' then error(problem, 0) end
  return all and 0 or absence(s)
end

-- Writes down the holder's name of the lease of `token`, and its fences from `first` to `top`.
local function know(s, token, first, top, name, life)
  local last, _, whose, other = fences(s)
  local highest = math.max(last, top)
  if s.owner then
    note(s, highest, highest - first, token, name, life)
  else
    call('HSET', s.holders, token, format('%.0f', first) .. ' ' .. name)
    note(s, highest, 0, whose or '-', other or '', life)
  end
end

-- top: the last of the lease's fences; back: how many there are before it. A detached lease keeps
-- its own fence, and only its last fence grows: see store/inheritance.rs.
function rules.accept(lock, side, token, top, back, life)
  local s = look(lock, side)
  hand_on(s, nil)
  if not holds(s, token) then return absence(s) end
  local own, last, name = lease_of(s, token)
  local _, noted = split_note(name)
  know(s, token, noted and own or top - back, math.max(last or 0, top), name, life)
  return 1
end

--[[more]]
return rules
