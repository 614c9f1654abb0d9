-- Grants leases. KEYS has a lock and its fence key for each request; ARGV has the ttl and the fence key's life in ms, the
-- holder's name, and then a token for each request.
-- Answers two values for each: 1 and the fence, 0 and the holder's remaining ms (-1: it never expires), or -1 and
-- an error's text.
--
-- This is the hot path, and the server does nothing else meanwhile. So there are no functions, each of which it would
-- make anew at every call, and fences are texts of 16 digits, which compare like the numbers: to format one number costs
-- it as much as to set a key.
--
-- No error stops it, whatever the user may not do: it would leave locks that are set already, and that nobody knows of.
local ttl, life, holder = ARGV[1], ARGV[2], ARGV[3]
local pcall, sub = redis.pcall, string.sub
local time = pcall('TIME') -- One look at the clock serves all requests, which run at one instant.
if time.err then return time end
local now = time[1] .. sub('000000' .. time[2], -6)
local answers = {}

for i = 1, #KEYS, 2 do
  local lock, side, token = KEYS[i], KEYS[i + 1], ARGV[(i + 7) / 2]
  local code, value = 1, nil
  local set = pcall('SET', lock, token, 'NX', 'PX', ttl)
  if not set then
    local owner = pcall('GET', lock)
    if type(owner) == 'table' then
      code, value = -1, owner.err
    elseif owner ~= token then
      code, value = 0, pcall('PTTL', lock)
    else
      -- The same request again: the same lease, with all of its ttl, which its fence outlives.
      code, value = 1, pcall('PEXPIRE', lock, ttl)
      if type(value) ~= 'table' then
        value = nil
        local known = pcall('GET', side)
        local fence, whose = string.match(type(known) == 'string' and known or '', '^(%d+) (%S+)')
        if whose == token then
          value = fence
          local left = pcall('PTTL', side)
          if type(left) == 'number' and left < (life + ttl) / 2 then pcall('PEXPIRE', side, life) end
        end
      end
    end
    if type(value) == 'table' then
      code, value = -1, value.err
    end
  elseif set.err then
    code, value = -1, set.err
  end

  if not value then
    -- The clock gives the fence, unless the last one was larger: then the clock was set back, or two leases came in one
    -- microsecond, and the fence counts on from there. Its key may expire once the clock alone makes every later fence
    -- larger, with an hour to spare for a clock that is set back.
    value = now
    local whose = ' ' .. token .. ' ' .. holder
    local last = pcall('SET', side, now .. whose, 'PX', life, 'GET')
    if type(last) == 'table' then
      -- Something else is kept there. It is our place, and a fence has to be.
      pcall('SET', side, now .. whose, 'PX', life)
    elseif last and sub(last, 1, 16) >= now then
      local fence = (tonumber(string.match(last, '^%d+')) or 0) + 1
      if fence > now + 0 then
        local ahead = math.ceil((fence - now) / 1000)
        value = string.format('%016.0f', fence)
        pcall('SET', side, value .. whose, 'PX', string.format('%.0f', life + ahead))
      end
    end
  end
  answers[i] = code
  answers[i + 1] = value
end
return answers
