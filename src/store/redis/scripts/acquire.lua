-- Grants leases. KEYS has a lock and its fence key for each request, ARGV a token, a ttl in ms and a holder's name.
-- Answers two values for each: 1 and the fence, 0 and the holder's remaining ms (-1: it never expires), or -1 and
-- an error's text.
--
-- Fences are handled as texts of 16 digits, which compare like the numbers: to format one number costs the server as
-- much as to set a key.
local HOUR = 3600000
local KEYS, ARGV, call, pcall, sub, format = KEYS, ARGV, redis.call, redis.pcall, string.sub, string.format
local answers = {}
local now -- The server's clock in microseconds; one look at it serves all requests, which run at one instant.
local lives = {} -- How long a fence key lives, by the lease's ttl.

local function clock()
  if not now then
    local time = call('TIME')
    now = time[1] .. sub('000000' .. time[2], -6)
  end
  return now
end

-- The clock gives the lease's fence, unless the last one was larger: then the clock was set back, or two leases came in
-- one microsecond, and the fence counts on from there. Its key may expire once the clock alone makes every later fence
-- larger, with an hour to spare for a clock that is set back.
local function next_fence(side, token, ttl, holder)
  local fence = clock()
  local life = lives[ttl]
  if not life then
    life = format('%.0f', ttl + HOUR)
    lives[ttl] = life
  end
  local whose = ' ' .. token .. ' ' .. holder
  local last = pcall('SET', side, fence .. whose, 'PX', life, 'GET')
  if not last then return fence end
  if type(last) == 'table' then
    -- Something else is kept there. It is our place, and a fence has to be.
    call('SET', side, fence .. whose, 'PX', life)
    return fence
  end
  if sub(last, 1, 16) < fence then return fence end
  local before = tonumber(string.match(last, '^%d+')) or 0
  if before >= tonumber(fence) then
    local ahead = math.ceil((before + 1 - fence) / 1000)
    fence = format('%016.0f', before + 1)
    call('SET', side, fence .. whose, 'PX', format('%.0f', ttl + HOUR + ahead))
  end
  return fence
end

local function acquire(lock, side, token, ttl, holder)
  local set = pcall('SET', lock, token, 'NX', 'PX', ttl)
  if set and set.err then return -1, set.err end
  if not set then
    local owner = pcall('GET', lock)
    if type(owner) == 'table' then return -1, owner.err end
    if owner ~= token then return 0, call('PTTL', lock) end
    -- The same request again: the same lease, with all of its ttl.
    call('PEXPIRE', lock, ttl)
    local fence, whose = string.match(call('GET', side) or '', '^(%d+) (%S+)')
    if whose == token then return 1, fence end
  end
  return 1, next_fence(side, token, ttl, holder)
end

for i = 1, #KEYS / 2 do
  local key, arg = 2 * i, 3 * i
  answers[key - 1], answers[key] = acquire(KEYS[key - 1], KEYS[key], ARGV[arg - 2], ARGV[arg - 1], ARGV[arg])
end
return answers
