-- Applies the rules of the store contract for one lock (see store/rules.rs) to the server's keys.
-- Scripts include this part in a function that gets the server's time in µs, `now_us`. Rules throw
-- errors, so scripts call them by pcall.
--
-- A lock has up to seven keys in one slot. A script gets the names of the lock and of one side key,
-- and makes the other names: only their last word differs. While no client waits and no lease is
-- shared, only the first two of the list below exist. All keys expire. The keys of the queue expire
-- within twice WAITER_LIFE, so that not every poll has to prolong them.
--
--   lock      a string: the token of the exclusive lease; or a sorted set: the tokens of the
--             shared leases, by when they end (ms)
--   :fence    a string: the last fences that were given away; see fence_text.lua
--   :queue    a sorted set: the tokens of the waiters by when they came (µs; no two the same). A
--             token that repairs a lease of a quorum has a negative score, so it is the first
--   :alive    a sorted set: the same tokens by when they lose their places without a poll (ms)
--   :waiters  a hash: the same tokens; see waiter_text.lua
--   :broken   there for BROKEN_LIFE after the lock was broken, if the server is a node of a quorum
--   :holders  a hash: the tokens of the shared leases; see holder_text.lua. A sorted set whose
--             members are not here is not a lock, unless they are tokens and there is a fence
--[[include prelude]]
--[[include fence_text]]
--[[include waiter_text]]
--[[include holder_text]]
--[[include hand_over]]
-- A test in scripts.rs compares the first two, and BROKEN_LIFE, with spans.rs.
local GRANT_TTL, WAITER_LIFE, UNHEARD_TTL = 1500, 2500, 200
local BROKEN_LIFE = 120000
-- 2^53 - 1, the largest number up to which Lua and JavaScript count exactly.
local MOST_FENCES = 9007199254740991
local now_ms = math.floor(now_us / 1000)
local rules = {}

-- Returns what is known of the fences: the last one, how many fences the lease has before it, the
-- lease's token (perhaps behind UNTOLD), and its holder's name.
local function fences(s)
  local last, back, whose, name = decode_fences(call('GET', s.fence) or '')
  return math.min(tonumber(last) or 0, MOST_FENCES), tonumber(back) or 0, whose, name
end

-- Reserves fences. Returns the first of them, which is larger than all before, and the last.
local function reserve(last, count)
  local first = math.min(math.max(now_us, last + 1), MOST_FENCES)
  return first, math.min(first + count - 1, MOST_FENCES)
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
  -- Delete what is left of leases that ended.
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

-- Grants leases to the first waiters, as long as they fit, and sends them notices. Stops at `but`,
-- the token that asks. Returns true if no waiter is left before `but`, or before a token that comes
-- now.
--
-- A waiter whose connection is gone keeps its place, but gets no lease: its process is most likely
-- gone, too. With `trust`, the waiter may be connecting again. So the rule keeps an exclusive lease
-- for the waiter, once and for UNHEARD_TTL only. It also sends the next waiter a notice, so that
-- this waiter polls: otherwise, no client might notice when that time is over.
local function hand_on(s, but, trust)
  local place = 0
  while not s.owner do
    local token, score = unpack(call('ZRANGE', s.queue, place, place, 'WITHSCORES'))
    if not token or token == but then return true end
    local text = call('HGET', s.waiters, token)
    local most, number, grant, channel, name =
      decode_waiter(text or encode_waiter('0', '0', GRANT_TTL, NO_CHANNEL, ''))
    if not fits(s, tonumber(most)) then return false end
    local exclusive = most == '0'
    -- A repair gets the lease until its place would end.
    local left = tonumber(score) < 0 and math.max(tonumber(call('ZSCORE', s.alive, token) or 0) - now_ms, 1)
    local there = exclusive and takes_fence(channel)
    -- `told` is 0 if no client listens, and the server's error if the user may not publish. After
    -- an error, hand on all the same: waiters also poll by themselves.
    local told = there or channel ~= NO_CHANNEL and (channel == LOST_CHANNEL and 0 or publish(channel, number))
    if told ~= 0 and exclusive then
      local first, last = reserve((fences(s)), GRANT_FENCES)
      local back, notice = format('%.0f', last - first), there and channel
      first, last = format(DIGITS, first), format(DIGITS, last)
      hand_over(s.lock, s.names, token, left or grant, first, last, back, name, notice, number)
      s.owner = token
    elseif told ~= 0 then
      share(s, token, now_ms + (left or GRANT_TTL), encode_holder(nil, name))
      forget(s.names, token)
    elseif trust and exclusive and channel ~= LOST_CHANNEL then
      local kept = encode_fences(format(DIGITS, (fences(s))), '0', UNTOLD .. token, name)
      give(s.lock, s.names, token, UNHEARD_TTL, kept)
      s.owner = token
      call('HSET', s.waiters, token, encode_waiter(most, number, grant, LOST_CHANNEL, name))
      local next_token = call('ZRANGE', s.queue, place + 1, place + 1)[1]
      local next_text = next_token and call('HGET', s.waiters, next_token) or ''
      local _, next_number, _, next_channel = decode_waiter(next_text)
      if next_number then publish(next_channel, next_number) end
    else
      place = place + 1
    end
  end
  return false
end

-- Removes the leases and the waiters whose time is over, and returns the state of the lock. Always
-- writes: a read-only replica has to refuse, and must not answer from old data.
local function look(lock, side)
  -- The side key in KEYS ends with a word of five letters.
  local names = sub(side, 1, -6)
  local s = {
    lock = lock,
    names = names,
    fence = names .. 'fence',
    queue = names .. 'queue',
    alive = names .. 'alive',
    waiters = names .. 'waiters',
    holders = names .. 'holders',
    count = 0,
    owner = false,
  }
  if call('TYPE', lock).ok == 'zset' then
    local ended = call('ZRANGEBYSCORE', lock, '-inf', now_ms)
    -- A sorted set whose members are not leases belongs to another application: no rule changes it.
    -- If no member has to be removed, checking one member is enough. A server that is short of
    -- memory may have dropped the holders and kept the fence.
    for _, token in ipairs(ended[1] and ended or call('ZRANGE', lock, 0, 0)) do
      if not call('HGET', s.holders, token) then
        local is_token = match(token, '^%x+%-%x+%-%x+%-%x+%-%x+$')
        local is_lease = is_token and decode_fences(call('GET', s.fence) or '')
        if not is_lease then error({ err = 'WRONGTYPE no lock' }, 0) end
      end
    end
    call('ZREMRANGEBYSCORE', lock, '-inf', now_ms)
    for _, token in ipairs(ended) do call('HDEL', s.holders, token) end
    s.count = call('ZCARD', lock)
  else
    s.owner = call('GETEX', lock)
  end
  for _, token in ipairs(call('ZRANGEBYSCORE', s.alive, '-inf', now_ms)) do forget(s.names, token) end
  return s
end

local function absence(s)
  return (s.owner or s.count > 0) and -1 or 0
end
