-- Grants leases. KEYS has a lock and its fence key for each request, ARGV a token, a ttl in ms and a holder's name.
-- Answers two values for each: 1 and the fence, 0 and the holder's remaining ms (-1: it never expires), or -1 and
-- an error's text.
local HOUR = 3600000
local now -- The server's clock in microseconds; one look at it serves all requests, which run at one instant.
local answers = {}

local function clock()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

-- Remembers the fence beside the lock. It may expire once the clock alone makes every later fence larger, with an
-- hour to spare for a clock that is set back.
local function remember(side, fence, token, holder, ttl)
  local ahead = math.max(0, math.ceil((fence - clock()) / 1000))
  local value = string.format('%.0f %s %s', fence, token, holder)
  return redis.pcall('SET', side, value, 'PX', string.format('%.0f', ttl + HOUR + ahead), 'GET')
end

local function next_fence(side, token, holder, ttl)
  local fence = clock()
  local last = remember(side, fence, token, holder, ttl)
  if type(last) == 'table' then return nil, last.err end
  local before = last and tonumber(string.match(last, '^%d+'))
  if before and before >= fence then
    fence = before + 1
    remember(side, fence, token, holder, ttl)
  end
  return fence
end

local function acquire(lock, side, token, ttl, holder)
  local set = redis.pcall('SET', lock, token, 'NX', 'PX', ttl)
  if set and set.err then return -1, set.err end
  if not set then
    local owner = redis.pcall('GET', lock)
    if type(owner) == 'table' then return -1, owner.err end
    if owner ~= token then return 0, redis.call('PTTL', lock) end
    -- The same request again: the same lease, with all of its ttl.
    redis.call('PEXPIRE', lock, ttl)
    local known = redis.pcall('GET', side)
    local fence, whose = string.match(type(known) == 'string' and known or '', '^(%d+) (%S+)')
    if whose == token then return 1, tonumber(fence) end
  end
  local fence, failure = next_fence(side, token, holder, tonumber(ttl))
  if fence then return 1, fence end
  redis.call('DEL', lock)
  return -1, failure
end

for i = 1, #KEYS / 2 do
  local code, value = acquire(KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i])
  answers[2 * i - 1] = code
  answers[2 * i] = value
end
return answers
