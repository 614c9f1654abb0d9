-- Grants leases of one ttl and holder. KEYS: the locks, then their fence keys; ARGV: the ttl and the fence keys' life
-- in ms, the holder's name, and a token for each lock.
-- Answers one value for each: the fence if granted; if not, -1 when the holder's key never expires, else -2 - the ms
-- until it does; or the server's error.
--
-- This is the hot path, and the server does nothing else meanwhile. There are no functions, each of which Lua would
-- make anew at every call. To format one number costs as much as to set a key; so fences are handled as texts of 16
-- digits, which compare like the numbers. To set a key "in 10 s" costs half as much again as to set it "until noon"; so
-- many requests share the ends in PXAT.
local call, pcall, sub = redis.call, redis.pcall, string.sub
local count = #KEYS / 2
local ttl, life, holder = ARGV[1], ARGV[2], ' ' .. ARGV[3]
local answers = {}

local time = call('TIME') -- One look at the clock serves all requests, which run at one instant.
local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
local now_us = tonumber(now)

local unit, lock_end, side_end = 'PX', ttl, life
if count > 4 then
  local now_ms = math.floor(now_us / 1000)
  unit = 'PXAT'
  lock_end, side_end = string.format('%.0f', now_ms + ttl), string.format('%.0f', now_ms + life)
end

for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 3]
  local answer
  local set = pcall('SET', lock, token, unit, lock_end, 'NX')
  if not set then
    local owner = pcall('GET', lock)
    if owner == token then
      -- The same request again, because its first answer was lost: the same lease, with all of its ttl or more.
      if call('PTTL', lock) < tonumber(ttl) then call('PEXPIRE', lock, ttl) end
      local known = pcall('GET', side)
      local fence, whose = string.match(known and not known.err and known or '', '^(%d+) (%S+)')
      if whose == token then
        -- The fence's key lives as long as the lease needs, and is never made to live shorter.
        local left = call('PTTL', side)
        if left >= 0 and left < tonumber(life) then call('PEXPIRE', side, life) end
        answer = tonumber(fence)
      end
    elseif owner and owner.err then
      answer = owner
    else
      local left = call('PTTL', lock)
      answer = left == -1 and -1 or -2 - math.max(left, 0)
    end
  elseif set.err then
    answer = set
  end

  if not answer then
    -- The clock gives the fence, unless the last one was not smaller: then the clock was set back, or two leases came
    -- in one microsecond, and the fence counts on from there. Its key must then last until the clock has caught up.
    answer = now_us
    local last = pcall('SET', side, now .. ' ' .. token .. holder, unit, side_end, 'GET')
    if last and last.err then
      answer = last
    elseif last and sub(last, 1, 16) >= now then
      last = tonumber(string.match(last, '^%d+')) or 0
      if last >= now_us then
        answer = math.min(last + 1, 9007199254740991) -- 2^53 - 1: Lua and JavaScript count no further
        local text = string.format('%016.0f', answer) .. ' ' .. token .. holder
        local ahead = math.ceil((answer - now_us) / 1000)
        local again = pcall('SET', side, text, 'PX', string.format('%.0f', life + ahead))
        if again.err then answer = again end
      end
    end
    -- A lease without a fence is none.
    if type(answer) == 'table' then pcall('DEL', lock) end
  end
  answers[i] = answer
end
return answers
