-- Grants leases of one kind. KEYS: the locks, then their fence keys; ARGV: the ttl and the fence
-- keys' life in ms, the holder's name, how many leases may be held at a time (0: an exclusive one),
-- how many fences are wanted, the channel that takes notices (- for none, "repair" if the acquires
-- repair leases of a quorum), a token for each lock, and, if the requests that are not granted
-- wait, a number for each lock.
-- Answers one value for each: the fence if granted and nobody waits; else a list of the fence and how many do; if not
-- granted, a number, -1 when what is in the way never ends, else -2 - the ms until it does; for one who waits, a list
-- of that number, how many stand before it, and the first 8 digits of the exclusive holder's token; or the server's error.
--
-- This is the hot path, and the server does nothing else meanwhile. There are no functions, each of which Lua would
-- make anew at every call: the rules are made when the first lock asks for more than to be free, and to have nobody
-- waiting for it. To format one number costs as much as to set a key; so fences are handled as texts of 16 digits,
-- which compare like the numbers. To set a key "in 10 s" costs half as much again as to set it "until noon"; so many
-- requests share the ends in PXAT.
local call, sub = redis.pcall, string.sub
local count = #KEYS / 2
local ttl, life, name, fences, repairs = ARGV[1], ARGV[2], ' ' .. ARGV[3], ARGV[5], ARGV[6] == 'repair'
local exclusive = ARGV[4] == '0' and not repairs
local numbers = #ARGV > 6 + count and 6 + count
local answers = {}

local time = redis.call('TIME') -- One look at the clock serves all requests, which run at one instant.
local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
local now_us = tonumber(now)

local unit, lock_end, side_end = 'PX', ttl, life
if count > 4 then
  local now_ms = math.floor(now_us / 1000)
  unit = 'PXAT'
  lock_end, side_end = string.format('%.0f', now_ms + ttl), string.format('%.0f', now_ms + life)
end
-- What a block of fences that begins now leaves behind.
local last_now = now
if fences ~= '1' then last_now = string.format('%016.0f-%.0f', now_us + fences - 1, fences - 1) end

local rules, ask
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 6]
  local answer
  local set = exclusive and call('SET', lock, token, unit, lock_end, 'NX')
  if set and not set.err then
    -- The clock gives the fence, unless the last one was not smaller: then the clock was set back, or two leases came
    -- in one microsecond. Nor is what begins with a q, for there may be a queue.
    local last = call('SET', side, last_now .. ' ' .. token .. name, unit, side_end, 'GET')
    if not last or not last.err and sub(last, 1, 16) < now then
      answer = now_us
    else
      -- As if nothing had been.
      call('DEL', lock)
      if last.err then answer = last else call('SET', side, last, 'KEEPTTL') end
    end
  elseif set then
    answer = set
  elseif exclusive and not numbers then
    -- MGET and not GET, because to it what is no string is nothing.
    local owner = call('MGET', lock)[1]
    if owner and owner ~= token then
      local left = call('PTTL', lock)
      answer = left == -1 and -1 or -2 - math.max(left, 0)
    end
  end
  if not answer then
    if not rules then
      rules = (function(now_us) --[[rules]] end)(now_us)
      ask = {
        ttl = tonumber(ttl),
        life = tonumber(life),
        name = ARGV[3],
        most = tonumber(ARGV[4]),
        count = tonumber(fences),
        channel = ARGV[6],
        repairs = repairs,
      }
    end
    local done
    done, answer = pcall(rules.acquire, lock, side, token, numbers and ARGV[numbers + i], ask)
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
  end
  answers[i] = answer
end
return answers
