-- Grants leases that have the ttl, the mode and the holder's name in common.
--
-- KEYS     the locks, then their :fence keys, in the same order
-- ARGV[1]  the ttl in ms
-- ARGV[2]  the ms for which the :fence keys live
-- ARGV[3]  the holder's name
-- ARGV[4]  how many leases may be held at a time; 0 for an exclusive one
-- ARGV[5]  how many fences are wanted
-- ARGV[6]  the channel that takes notices, or - for none
-- ARGV[7]  1 if the waiters need replicas: notices have no fence, so that they ask for it; else 0
-- ARGV[8]  1 if the acquires repair leases of a quorum, else 0
-- then     a token for each lock
-- then     if the requests that are not granted wait, a number for each lock
--
-- Answers one value for each lock:
--   granted      the fence; if others wait, a list of the fence and the number of waiters
--   not granted  -1 if the lease in the way never ends, else -2 - the ms until it ends
--   queued       a list of that number, how many waiters are before this one, and the first 8
--                digits of the exclusive holder's token
--   failed       the server's error
--
-- This is the hot path, and the server does nothing else meanwhile. It has no functions, because
-- Lua would make each of them again at every call. The script makes the rules and the functions of
-- the other parts when it finds the first lock that is not free, or has waiters. Formatting one
-- number costs as much as setting a key, so fences are texts of 16 digits, which compare like the
-- numbers. Setting a key with PX costs half as much again as with PXAT, so many requests share one
-- PXAT end.
local try, sub = redis.pcall, string.sub
local count = #KEYS / 2
local ttl, life, name, fences = ARGV[1], ARGV[2], ' ' .. ARGV[3], ARGV[5]
local repairs = ARGV[8] == '1'
local exclusive = ARGV[4] == '0' and not repairs
local numbers = #ARGV > 8 + count and 8 + count
local answers = {}

local time = redis.call('TIME') -- One reading serves all requests, which run at one instant.
local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
local now_us = tonumber(now)

local unit, lock_end, side_end = 'PX', ttl, life
if count > 4 then
  local now_ms = math.floor(now_us / 1000)
  unit = 'PXAT'
  lock_end, side_end = string.format('%.0f', now_ms + ttl), string.format('%.0f', now_ms + life)
end
-- The beginning of the :fence text after a block of fences that begins now, in the format of
-- encode_fences.
local last_now = now
if fences ~= '1' then last_now = string.format('%016.0f-%.0f', now_us + fences - 1, fences - 1) end

local rules, ask
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 8]
  local answer
  local set = exclusive and try('SET', lock, token, unit, lock_end, 'NX')
  if set and not set.err then
    -- The time is the fence, unless the last fence is not smaller. Then the clock was set back, or
    -- two leases came in one microsecond. A text that begins with QUEUED is not smaller, either.
    local last = try('SET', side, last_now .. ' ' .. token .. name, unit, side_end, 'GET')
    if not last or not last.err and sub(last, 1, 16) < now then
      answer = now_us
    else
      -- Undo both writes.
      try('DEL', lock)
      if last.err then answer = last else try('SET', side, last, 'KEEPTTL') end
    end
  elseif set then
    answer = set
  elseif exclusive and not numbers then
    -- MGET and not GET: to MGET, a key that is no string is missing.
    local owner = try('MGET', lock)[1]
    if owner and owner ~= token then
      local left = try('PTTL', lock)
      -- An error is a table. For example, the user may have no right to PTTL.
      answer = type(left) == 'table' and left or left == -1 and -1 or -2 - math.max(left, 0)
    end
  end
  if not answer then
    if not rules then
      rules = (function(now_us)
        --[[include rules]]
        --[[include acquisition]]
        return rules
      end)(now_us)
      ask = {
        ttl = tonumber(ttl),
        life = tonumber(life),
        name = ARGV[3],
        most = tonumber(ARGV[4]),
        count = tonumber(fences),
        channel = ARGV[6],
        needs_replicas = ARGV[7] == '1',
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
