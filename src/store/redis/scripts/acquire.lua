-- Grants leases of one ttl and holder. KEYS: the locks, then their fence keys; ARGV: the ttl and the fence keys' life
-- in ms, the holder's name, and a token for each lock.
-- Answers one value for each: the fence if granted; if not, -1 when the holder's key never expires, else -2 - the ms
-- until it does; or the server's error.
--
-- To format one number costs the server as much as to set a key, and to set a key "in 10 s" half as much again as to
-- set it "until noon". So the times are formatted once, and fences are handled as texts of 16 digits, which compare
-- like the numbers.
local call, sub, format = redis.pcall, string.sub, string.format
local count = #KEYS / 2
local ttl, life, holder = ARGV[1], ARGV[2], ' ' .. ARGV[3]
local answers = {}

local time = redis.call('TIME')
local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
local now_us = tonumber(now)

local unit, lock_end, fence_end = 'PX', ttl, life
if count > 1 then
  local now_ms = math.floor(now_us / 1000)
  unit, lock_end, fence_end = 'PXAT', format('%.0f', now_ms + ttl), format('%.0f', now_ms + life)
end

-- The clock gives the fence, unless the last one was not smaller: then the clock was set back, or two leases came in
-- one microsecond, and the fence counts on from there. Its key must then last until the clock has caught up.
local function next_fence(lock, side, token)
  local last = call('SET', side, now .. ' ' .. token .. holder, unit, fence_end, 'GET')
  if not last then return now_us end
  if last.err then
    call('DEL', lock)
    return last
  end
  if sub(last, 1, 16) < now then return now_us end
  last = tonumber(string.match(last, '^%d+')) or 0
  if last < now_us then return now_us end
  local fence = math.min(last + 1, 9007199254740991) -- 2^53 - 1, the last integer that Lua and JavaScript tell apart
  local ahead = math.ceil((fence - now_us) / 1000)
  local text = format('%016.0f', fence) .. ' ' .. token .. holder
  local set = call('SET', side, text, 'PX', format('%.0f', life + ahead))
  if set.err then
    call('DEL', lock)
    return set
  end
  return fence
end

-- Somebody holds the lock: another token, or this one, whose first answer was lost.
local function held(lock, side, token)
  local owner = call('GET', lock)
  if owner ~= token then
    if owner and owner.err then return owner end
    local left = redis.call('PTTL', lock)
    if left == -1 then return -1 end
    return -2 - math.max(left, 0)
  end
  local done = call('PEXPIRE', lock, ttl)
  if done ~= 1 then return done end
  local last = call('GET', side)
  local fence, whose = string.match(last and not last.err and last or '', '^(%d+) (%S+)')
  if whose ~= token then return next_fence(lock, side, token) end
  -- Its key lives as long as the lease needs, and is never made to live shorter.
  local left = redis.call('PTTL', side)
  if left >= 0 and left < tonumber(life) then call('PEXPIRE', side, life) end
  return tonumber(fence)
end

for i = 1, count do
  local lock, token = KEYS[i], ARGV[i + 3]
  local set = call('SET', lock, token, unit, lock_end, 'NX')
  if not set then
    answers[i] = held(lock, KEYS[count + i], token)
  elseif set.err then
    answers[i] = set
  else
    answers[i] = next_fence(lock, KEYS[count + i], token)
  end
end
return answers
